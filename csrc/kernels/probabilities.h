// Passes over a row of logits: the sum behind log probabilities, ranks, the likeliest, the highest that are allowed.
#pragma once

#include "kernels.h"
#include "mathx.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// `exp_fixed`, lane by lane and bit for bit.
FREEHOLD_INLINE D d_exp(D argument) {
    const D lowest = d_set(kExpLowestDouble);
    const D x = d_where_at_least(argument, lowest, argument);
    const D shifted = d_add(d_mul(x, d_set(kLog2E)), d_set(kRoundingShift));
    const D k = d_sub(shifted, d_set(kRoundingShift));
    const D r = d_sub(d_sub(x, d_mul(k, d_set(kLn2High))), d_mul(k, d_set(kLn2Low)));
    D p = d_set(kInverseFactorials[13]);
    for (int i = 12; i >= 0; --i) p = d_add(d_mul(p, r), d_set(kInverseFactorials[i]));
    return d_where_at_least(argument, lowest, d_mul(p, d_power(shifted)));
}

double exp_sum(const float* logits, int count, float highest) {
    const D top = d_set(highest);
    D low = d_set(0.0);
    D high = d_set(0.0);
    const int whole = count / kPanel * kPanel;
    for (int i = 0; i < whole; i += kPanel) {
        const F v = f_load(logits + i);
        low = d_add(low, d_exp(d_sub(d_from_low(v), top)));
        high = d_add(high, d_exp(d_sub(d_from_high(v), top)));
    }
    double lanes[kPanel];
    d_store(lanes, low);
    d_store(lanes + kPanel / 2, high);
    for (int i = whole; i < count; ++i) {
        lanes[i - whole] += exp_fixed(static_cast<double>(logits[i]) - static_cast<double>(highest));
    }
    for (int width = kPanel / 2; width >= 1; width /= 2) {
        for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
    }
    return lanes[0];
}

int rank(const float* logits, int count, int id) {
    const float own = logits[id];
    const F value = f_set(own);
    const int before = id / kPanel * kPanel;  // whole vectors before that of `id`
    const int whole = count / kPanel * kPanel;
    int likelier = 0;
    for (int i = 0; i < before; i += kPanel) {
        likelier += kPanel - __builtin_popcount(mask_bits(f_less(f_load(logits + i), value)));
    }
    for (int i = before + kPanel; i < whole; i += kPanel) {
        likelier += __builtin_popcount(mask_bits(f_less(value, f_load(logits + i))));
    }
    const auto compare = [&](int begin, int end) {
        for (int i = begin; i < end; ++i) likelier += logits[i] > own || (i < id && logits[i] == own) ? 1 : 0;
    };
    compare(before, before + kPanel < count ? before + kPanel : count);
    if (whole > before) compare(whole, count);
    return 1 + likelier;
}

int above(const float* logits, int begin, int end, float threshold, std::int32_t* ids) {
    const F limit = f_set(threshold);
    int count = 0;
    for (int first = begin; first < end; first += kPanel) {
        unsigned found = mask_bits(f_less(limit, f_load(logits + first)));
        if (end - first < kPanel) found &= (1u << (end - first)) - 1u;
        for (; found != 0; found &= found - 1) ids[count++] = first + __builtin_ctz(found);
    }
    return count;
}

LogitScan scan_allowed(const float* logits, int count, const std::uint32_t* allowed) {
    const F lowest = f_set(-__builtin_inff());
    F highest = lowest;
    const auto bits_at = [&](int first) {
        unsigned bits = allowed[first / 32] >> (first % 32) & 0xffffu;
        if (count - first < kPanel) bits &= (1u << (count - first)) - 1u;
        return bits;
    };
    for (int first = 0; first < count; first += kPanel) {
        const unsigned bits = bits_at(first);
        if (bits != 0) highest = f_max(highest, f_select(lanes_of(bits), f_load(logits + first), lowest));
    }
    const float top = f_highest(highest);
    for (int first = 0; first < count; first += kPanel) {
        for (unsigned bits = bits_at(first); bits != 0; bits &= bits - 1) {
            const int id = first + __builtin_ctz(bits);
            if (logits[id] == top) return {top, id, true};
        }
    }
    return {top, 0, true};
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
