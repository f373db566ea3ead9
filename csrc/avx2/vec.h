// Sixteen lanes in pairs of AVX2 registers. See avx512/vec.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "inlining.h"

#define FREEHOLD_ISA avx2

namespace freehold::avx2 {
namespace {

struct F {
    __m256 a, b;
};
struct I {
    __m256i a, b;
};
using M = F;  // all bits of a lane set or clear

constexpr const char* kIsaName = "avx2";
constexpr int kStripVectors = 1;
constexpr int kMaxTileRows = 4;
constexpr int kMaxQueryTile = 3;
constexpr int kScoreVectors = 2;

FREEHOLD_INLINE F f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
FREEHOLD_INLINE F f_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FREEHOLD_INLINE F f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
FREEHOLD_INLINE void f_store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
FREEHOLD_INLINE __m256 load_few8(const float* p, int count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane));
}
FREEHOLD_INLINE F f_load_few(const float* p, int count) { return {load_few8(p, count), load_few8(p + 8, count - 8)}; }
FREEHOLD_INLINE F f_add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
FREEHOLD_INLINE F f_sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
FREEHOLD_INLINE F f_mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
FREEHOLD_INLINE F f_div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
FREEHOLD_INLINE F f_fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
FREEHOLD_INLINE F f_max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
FREEHOLD_INLINE F f_min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
FREEHOLD_INLINE I f_bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
FREEHOLD_INLINE F f_from_bits(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
FREEHOLD_INLINE F f_from_int(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
FREEHOLD_INLINE M f_less(F x, F y) {
    return {_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ)};
}
FREEHOLD_INLINE M f_is_nan(F x) {
    return {_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q)};
}
FREEHOLD_INLINE F f_select(M m, F yes, F no) {
    return {_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b)};
}
FREEHOLD_INLINE F f_half(const std::uint8_t* p) {
    const auto* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
FREEHOLD_INLINE __m256 widen_bf16(const __m128i* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
FREEHOLD_INLINE F f_bf16_even(I line) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(line.a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(line.b, 16))};
}
FREEHOLD_INLINE F f_bf16_odd(I line) {
    const __m256i high = _mm256_set1_epi32(static_cast<int>(0xffff0000));
    return {_mm256_castsi256_ps(_mm256_and_si256(line.a, high)), _mm256_castsi256_ps(_mm256_and_si256(line.b, high))};
}
FREEHOLD_INLINE F f_bf16(const void* p) {
    const auto* q = static_cast<const __m128i*>(p);
    return {widen_bf16(q), widen_bf16(q + 1)};
}

FREEHOLD_INLINE float f_sum(F x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
FREEHOLD_INLINE float f_highest(F x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

FREEHOLD_INLINE I i_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
FREEHOLD_INLINE I i_set(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
FREEHOLD_INLINE I i_load(const void* p) {
    const auto* q = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
FREEHOLD_INLINE void i_store(void* p, I x) {
    auto* q = static_cast<__m256i*>(p);
    _mm256_storeu_si256(q, x.a);
    _mm256_storeu_si256(q + 1, x.b);
}
FREEHOLD_INLINE I i_add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
FREEHOLD_INLINE I i_sub(I x, I y) { return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)}; }
FREEHOLD_INLINE I i_and(I x, I y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
FREEHOLD_INLINE I i_xor(I x, I y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
FREEHOLD_INLINE I i_max(I x, I y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
template <int N>
FREEHOLD_INLINE I i_shift_right(I x) {
    return {_mm256_srli_epi32(x.a, N), _mm256_srli_epi32(x.b, N)};
}
template <int N>
FREEHOLD_INLINE I i_shift_left(I x) {
    return {_mm256_slli_epi32(x.a, N), _mm256_slli_epi32(x.b, N)};
}
FREEHOLD_INLINE int i_sum(I x) {
    const __m256i eight = _mm256_add_epi32(x.a, x.b);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
FREEHOLD_INLINE int i_highest(I x) {
    const __m256i eight = _mm256_max_epi32(x.a, x.b);
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
// Low bytes of the lanes; values fit in int8, so that saturating packs lose nothing.
FREEHOLD_INLINE void i_store_bytes(std::int8_t* p, I x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
FREEHOLD_INLINE __m256i bf16_of(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
}
FREEHOLD_INLINE I i_bf16(F x) { return {bf16_of(x.a), bf16_of(x.b)}; }
FREEHOLD_INLINE __m256i halves_of(F x) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_of(x.a), bf16_of(x.b)), 0xd8);
}
FREEHOLD_INLINE void f_store_bf16(std::uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves_of(x));
}
FREEHOLD_INLINE I i_bf16_pairs(F x, F y) { return {halves_of(x), halves_of(y)}; }
FREEHOLD_INLINE void transpose8(__m256i (&rows)[8]) {
    __m256i pairs[8], quads[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        quads[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
        quads[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
        quads[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        quads[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int k = 0; k < 4; ++k) {
        rows[k] = _mm256_permute2x128_si256(quads[k], quads[k + 4], 0x20);
        rows[k + 4] = _mm256_permute2x128_si256(quads[k], quads[k + 4], 0x31);
    }
}
FREEHOLD_INLINE void i_transpose(I (&rows)[16]) {
    __m256i upper_left[8], upper_right[8], lower_left[8], lower_right[8];
    for (int i = 0; i < 8; ++i) {
        upper_left[i] = rows[i].a;
        upper_right[i] = rows[i].b;
        lower_left[i] = rows[i + 8].a;
        lower_right[i] = rows[i + 8].b;
    }
    transpose8(upper_left);
    transpose8(upper_right);
    transpose8(lower_left);
    transpose8(lower_right);
    for (int i = 0; i < 8; ++i) {
        rows[i] = {upper_left[i], lower_left[i]};
        rows[i + 8] = {upper_right[i], lower_right[i]};
    }
}
FREEHOLD_INLINE void i_store_bytes_of_lanes(void* p, I x, unsigned bytes) {
    if (bytes == 15) return i_store(p, x);
    std::uint8_t all[sizeof(I)];
    i_store(all, x);
    for (unsigned i = 0; i < sizeof all; ++i) {
        if ((bytes >> i % 4 & 1) != 0) static_cast<std::uint8_t*>(p)[i] = all[i];
    }
}
FREEHOLD_INLINE void i_store_lanes(void* p, I x, M lanes) {
    auto* q = static_cast<int*>(p);
    _mm256_maskstore_epi32(q, _mm256_castps_si256(lanes.a), x.a);
    _mm256_maskstore_epi32(q + 8, _mm256_castps_si256(lanes.b), x.b);
}
// Lane i is x[i], the rest is 0.
template <int N>
FREEHOLD_INLINE F f_collect(const float (&x)[N]) {
    static_assert(N <= 8);
    const auto at = [&](int i) FREEHOLD_INLINE_LAMBDA { return i < N ? x[i] : 0.0f; };
    return {_mm256_setr_ps(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)), _mm256_setzero_ps()};
}
// Lane i is vector i's result, for up to eight vectors.
template <int N>
FREEHOLD_INLINE F f_sum_each(const F (&v)[N]) {
    float sums[N];
    for (int i = 0; i < N; ++i) sums[i] = f_sum(v[i]);
    return f_collect(sums);
}
template <int N>
FREEHOLD_INLINE F f_highest_each(const F (&v)[N]) {
    float highest[N];
    for (int i = 0; i < N; ++i) highest[i] = f_highest(v[i]);
    return f_collect(highest);
}
FREEHOLD_INLINE I i_quads(int a, int b, int c, int d) {
    return {_mm256_setr_epi32(a, a, a, a, b, b, b, b), _mm256_setr_epi32(c, c, c, c, d, d, d, d)};
}
FREEHOLD_INLINE I i_sum4(I a, I b, I c, I d) { return i_quads(i_sum(a), i_sum(b), i_sum(c), i_sum(d)); }
FREEHOLD_INLINE I i_highest4(I a, I b, I c, I d) {
    return i_quads(i_highest(a), i_highest(b), i_highest(c), i_highest(d));
}
template <int Number>
FREEHOLD_INLINE F f_repeat4(F x) {
    const __m256 half = Number < 2 ? x.a : x.b;
    const __m256 all = _mm256_permute2f128_ps(half, half, Number % 2 == 0 ? 0x00 : 0x11);
    return {all, all};
}
FREEHOLD_INLINE void i_store_every4(void* p, I x) {
    const std::int32_t four[4] = {_mm256_extract_epi32(x.a, 0), _mm256_extract_epi32(x.a, 4),
                                  _mm256_extract_epi32(x.b, 0), _mm256_extract_epi32(x.b, 4)};
    std::memcpy(p, four, sizeof four);
}
FREEHOLD_INLINE __m256 lanes_between8(__m256i lane, int low, int high) {
    const __m256i under = _mm256_cmpgt_epi32(_mm256_set1_epi32(high), lane);
    const __m256i over = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(low - 1));
    return _mm256_castsi256_ps(_mm256_and_si256(under, over));
}
FREEHOLD_INLINE M lanes_between(int low, int high) {
    return {lanes_between8(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), low, high),
            lanes_between8(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), low, high)};
}
FREEHOLD_INLINE I i_mul_even(I x, I y) { return {_mm256_mul_epu32(x.a, y.a), _mm256_mul_epu32(x.b, y.b)}; }
FREEHOLD_INLINE I i_high_to_even(I x) { return {_mm256_srli_epi64(x.a, 32), _mm256_srli_epi64(x.b, 32)}; }
FREEHOLD_INLINE I i_interleave_even(I x, I y) {
    return {_mm256_blend_epi32(x.a, _mm256_slli_epi64(y.a, 32), 0xaa),
            _mm256_blend_epi32(x.b, _mm256_slli_epi64(y.b, 32), 0xaa)};
}
FREEHOLD_INLINE I i_interleave_odd(I x, I y) {
    return {_mm256_blend_epi32(_mm256_srli_epi64(x.a, 32), y.a, 0xaa),
            _mm256_blend_epi32(_mm256_srli_epi64(x.b, 32), y.b, 0xaa)};
}
FREEHOLD_INLINE unsigned mask_bits(M m) {
    return static_cast<unsigned>(_mm256_movemask_ps(m.a)) | static_cast<unsigned>(_mm256_movemask_ps(m.b)) << 8;
}

FREEHOLD_INLINE I i_and_or(I x, I mask, I y) {
    return {_mm256_or_si256(_mm256_and_si256(x.a, mask.a), y.a), _mm256_or_si256(_mm256_and_si256(x.b, mask.b), y.b)};
}
FREEHOLD_INLINE I i_load_bytes(const std::uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
FREEHOLD_INLINE I i_look_up(I bytes, const std::uint8_t (&table)[16]) {
    const __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(entries, bytes.a), _mm256_shuffle_epi8(entries, bytes.b)};
}

struct Nibbles {
    I offset;
};
template <int Offset>
FREEHOLD_INLINE Nibbles nibbles() {
    return {i_set(Offset)};
}
template <int Shift>
FREEHOLD_INLINE F f_nibble(I line, const Nibbles& n) {
    return f_from_int(i_sub(i_and(i_shift_right<Shift>(line), i_set(15)), n.offset));
}

// Where maddubs cannot saturate it multiplies bytes. Larger weights are multiplied as 16-bit words, even and odd bytes
// apart.
constexpr bool fits_maddubs(int highest) { return 2 * highest * 127 <= 32767; }
template <bool Bytes>
struct QuadOf {
    __m256i even, odd;
};
template <>
struct QuadOf<true> {
    __m256i bytes;
};
template <int Highest>
using Quad = QuadOf<fits_maddubs(Highest)>;
template <int Highest>
FREEHOLD_INLINE Quad<Highest> quad(const std::int8_t* p) {
    int four;
    std::memcpy(&four, p, sizeof four);
    const __m256i all = _mm256_set1_epi32(four);
    if constexpr (fits_maddubs(Highest)) {
        return {all};
    } else {
        return {_mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8), _mm256_srai_epi16(all, 8)};
    }
}
FREEHOLD_INLINE __m256i dot8(__m256i sum, __m256i weights, const QuadOf<true>& x) {
    const __m256i pairs = _mm256_maddubs_epi16(weights, x.bytes);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
FREEHOLD_INLINE __m256i dot8(__m256i sum, __m256i weights, const QuadOf<false>& x) {
    const __m256i even = _mm256_and_si256(weights, _mm256_set1_epi16(255));
    const __m256i odd = _mm256_srli_epi16(weights, 8);
    const __m256i products = _mm256_add_epi32(_mm256_madd_epi16(even, x.even), _mm256_madd_epi16(odd, x.odd));
    return _mm256_add_epi32(sum, products);
}
template <int Highest>
FREEHOLD_INLINE I dot(I sum, I weights, const Quad<Highest>& x) {
    return {dot8(sum.a, weights.a, x), dot8(sum.b, weights.b, x)};
}

using LoopSum = I;
FREEHOLD_INLINE LoopSum loop_sum(I x) { return x; }
FREEHOLD_INLINE I i_of(LoopSum x) { return x; }

FREEHOLD_INLINE M lanes_of(unsigned bits) {
    const __m256i low = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i high = _mm256_slli_epi32(low, 8);
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
    return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low)),
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, high), high))};
}

struct D {
    __m256d a, b;
};
FREEHOLD_INLINE D d_set(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
FREEHOLD_INLINE D d_widen(__m256 x) {
    return {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
}
FREEHOLD_INLINE D d_from_low(F x) { return d_widen(x.a); }
FREEHOLD_INLINE D d_from_high(F x) { return d_widen(x.b); }
FREEHOLD_INLINE void d_store(double* p, D x) {
    _mm256_storeu_pd(p, x.a);
    _mm256_storeu_pd(p + 4, x.b);
}
FREEHOLD_INLINE D d_add(D x, D y) { return {_mm256_add_pd(x.a, y.a), _mm256_add_pd(x.b, y.b)}; }
FREEHOLD_INLINE D d_sub(D x, D y) { return {_mm256_sub_pd(x.a, y.a), _mm256_sub_pd(x.b, y.b)}; }
FREEHOLD_INLINE D d_mul(D x, D y) { return {_mm256_mul_pd(x.a, y.a), _mm256_mul_pd(x.b, y.b)}; }
FREEHOLD_INLINE D d_where_at_least(D x, D y, D z) {
    return {_mm256_and_pd(_mm256_cmp_pd(x.a, y.a, _CMP_GE_OQ), z.a),
            _mm256_and_pd(_mm256_cmp_pd(x.b, y.b, _CMP_GE_OQ), z.b)};
}
FREEHOLD_INLINE __m256d d_power4(__m256d shifted) {
    const __m256i exponent = _mm256_add_epi64(_mm256_castpd_si256(shifted), _mm256_set1_epi64x(1023));
    return _mm256_castsi256_pd(_mm256_slli_epi64(exponent, 52));
}
FREEHOLD_INLINE D d_power(D shifted) { return {d_power4(shifted.a), d_power4(shifted.b)}; }

}  // namespace
}  // namespace freehold::avx2

#include "kernels/without_bf16_dot.h"
#include "kernels/without_integer_scales.h"
