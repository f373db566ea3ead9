// Finds the tokens whose Gumbel noise could win, without a logarithm.
//
// With w0 the upper 32 random bits, u < (w0 + 1) / 2^32, so -log(u) >= 1 - u > L = (2^32 - 1 - w0) / 2^32, and the
// noise -log(-log(u)) is below -log(L). A token can beat `best` only if L <= exp(scaled - best). The comparison is in
// float32 with a margin far above its rounding errors; a token too many costs time, never a result.
#pragma once

#include "kernels.h"
#include "kernels/exp.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr float kMargin = 1.001f;

struct Product {
    I low, high;
};

FREEHOLD_INLINE Product multiply(I a, I factor) {
    const I even = i_mul_even(a, factor);
    const I odd = i_mul_even(i_high_to_even(a), factor);
    return {i_interleave_even(even, odd), i_interleave_odd(even, odd)};
}

FREEHOLD_INLINE I philox_first_word(I token_ids, const NoiseKey& key) {
    I c0 = token_ids;
    I c1 = i_set(static_cast<std::int32_t>(key.pos));
    I c2 = i_set(static_cast<std::int32_t>(key.choice));
    I c3 = i_zero();
    auto key0 = static_cast<std::uint32_t>(key.seed);
    auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
    const I factor0 = i_set(static_cast<std::int32_t>(kPhiloxMultipliers[0]));
    const I factor1 = i_set(static_cast<std::int32_t>(kPhiloxMultipliers[1]));
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const Product p0 = multiply(c0, factor0);
        const Product p1 = multiply(c2, factor1);
        c0 = i_xor(i_xor(p1.high, c1), i_set(static_cast<std::int32_t>(key0)));
        c1 = p1.low;
        c2 = i_xor(i_xor(p0.high, c3), i_set(static_cast<std::int32_t>(key1)));
        c3 = p0.low;
        key0 += kPhiloxKeySteps[0];
        key1 += kPhiloxKeySteps[1];
    }
    return c0;
}

int noise_candidates(const NoiseCall& call, std::int32_t* ids) {
    alignas(64) static constexpr std::int32_t kLanes[kPanel] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const I lanes = i_load(kLanes);
    const F highest = f_set(call.highest);
    const F inverse_temperature = f_set(call.inverse_temperature);
    const F best = f_set(call.best);
    const F margin = f_set(kMargin);
    int count = 0;
    for (int first = call.begin; first < call.end; first += kPanel) {
        const F scaled = f_mul(f_sub(f_load(call.logits + first), highest), inverse_temperature);
        const F limit = f_mul(f_exp(f_sub(scaled, best)), margin);
        const I words = philox_first_word(i_add(lanes, i_set(first)), call.key);
        // The upper 24 bits, rounded towards more candidates, convert exactly.
        const I below_one = i_sub(i_set(0x00ffffff), i_shift_right<8>(words));
        const F least = f_mul(f_from_int(below_one), f_set(0x1p-24f));
        // Not "least <= limit": a NaN (tiny temperature) must stay a candidate.
        unsigned possible = ~mask_bits(f_less(limit, least)) & 0xffffu;
        if (call.end - first < kPanel) possible &= (1u << (call.end - first)) - 1u;
        for (; possible != 0; possible &= possible - 1) ids[count++] = first + __builtin_ctz(possible);
    }
    return count;
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
