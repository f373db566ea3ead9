// What attention in bf16 needs beside vec.h: products of bf16 pairs, stores in bf16, and a fast 2^x.
#pragma once

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr bool kBf16Dot = true;

// sum + the products of pairs of bf16, lane by lane.
FREEHOLD_INLINE F f_dot_bf16(F sum, I a, I b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// A sum of bf16 numbers, taken from where they are stored.
struct HalfSum {
    __m256 lanes = _mm256_setzero_ps();
};
// Stores 16 lanes as bf16 and adds what was stored.
FREEHOLD_INLINE void add_halves(HalfSum& sum, std::uint16_t* p, F a) {
    const __m256bh halves = _mm512_cvtneps_pbh(a);
    const __m256i ones = _mm256_set1_epi16(0x3f80);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(halves));
    sum.lanes = _mm256_dpbf16_ps(sum.lanes, halves, reinterpret_cast<__m256bh>(ones));
}
FREEHOLD_INLINE float total_of(HalfSum sum) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum.lanes), _mm256_extractf128_ps(sum.lanes, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// 2^x for x <= 0, with a relative error of 3e-6: for weights that are rounded to bf16. 2^0 is exactly 1.
FREEHOLD_INLINE F f_exp2(F x) {
    const F r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // above the integer below x
    F p = f_set(1.342668441e-02f);
    p = f_fma(p, r, f_set(5.224247390e-02f));
    p = f_fma(p, r, f_set(2.412802050e-01f));
    p = f_fma(p, r, f_set(6.930448449e-01f));
    p = f_fma(p, r, f_set(1.0f));
    return _mm512_scalef_ps(p, x);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
