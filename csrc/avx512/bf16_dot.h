// What attention in bf16 needs beside vec.h: products of bf16 pairs, stores in bf16, and a fast 2^x.
#pragma once

#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr bool kBf16Dot = true;

// sum + the products of pairs of bf16, lane by lane.
FREEHOLD_INLINE F f_dot_bf16(F sum, I a, I b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Stores 16 lanes as bf16, rounded to nearest even. Numbers below 2^-126 become 0.
FREEHOLD_INLINE void f_store_halves(std::uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
}
// Sums of pairs of the 64 bf16 numbers at `p`, in 16 lanes.
FREEHOLD_INLINE F f_sum_halves64(const std::uint16_t* p) {
    const I ones = _mm512_set1_epi16(0x3f80);
    return f_dot_bf16(f_dot_bf16(f_zero(), i_load(p), ones), i_load(p + 32), ones);
}

// 2^x for x <= 0: a polynomial for the part above the integer below x, and that integer added to the exponent. Below
// -127 it is 0. On Zen 4 only the polynomial's steps compete with dot products for their pipes.
template <int Degree>
FREEHOLD_INLINE F f_power(F x, const float (&coefficients)[Degree]) {
    const F raised = f_max(f_set(-127.0f), x);  // NaN stays NaN
    const F whole = _mm512_roundscale_ps(raised, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    const F r = f_sub(raised, whole);
    F p = f_set(coefficients[0]);
    unrolled<Degree - 1>([&](auto i) FREEHOLD_INLINE_LAMBDA { p = f_fma(p, r, f_set(coefficients[i + 1])); });
    p = f_fma(p, r, f_set(1.0f));  // 2^0 is exactly 1
    return f_from_bits(i_add(f_bits(p), i_shift_left<23>(_mm512_cvtps_epi32(whole))));
}
// With a relative error of 3e-6.
FREEHOLD_INLINE F f_exp2(F x) {
    return f_power<4>(x, {1.342668441e-02f, 5.224247390e-02f, 2.412802050e-01f, 6.930448449e-01f});
}
// With one of 9e-5: for weights that are rounded to bf16, which is 2e-3.
FREEHOLD_INLINE F f_exp2_for_bf16(F x) { return f_power<3>(x, {7.706705e-02f, 2.276449812e-01f, 6.951167887e-01f}); }

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
