// Sixteen lanes in AVX-512 registers. The same functions exist in avx2/vec.h and generic/vec.h; kernels/ is written
// over them. Included inside the ISA's namespace.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "inlining.h"

#if defined(__AVX512BF16__)
#define FREEHOLD_ISA avx512bf16
#else
#define FREEHOLD_ISA avx512
#endif

namespace freehold::FREEHOLD_ISA {
namespace {

using F = __m512;
using I = __m512i;
using M = __mmask16;

#if defined(__AVX512BF16__)
constexpr const char* kIsaName = "avx512bf16";
#else
constexpr const char* kIsaName = "avx512";
#endif
constexpr int kStripVectors = 2;  // panels that one tile of a linear kernel covers
constexpr int kMaxTileRows = 6;   // rows of such a tile
constexpr int kMaxQueryTile = 6;  // queries of an attention tile
constexpr int kScoreVectors = 4;  // vectors of scores that stay in registers

FREEHOLD_INLINE F f_zero() { return _mm512_setzero_ps(); }
FREEHOLD_INLINE F f_set(float x) { return _mm512_set1_ps(x); }
FREEHOLD_INLINE F f_load(const float* p) { return _mm512_loadu_ps(p); }
FREEHOLD_INLINE void f_store(float* p, F a) { _mm512_storeu_ps(p, a); }
// The first `count` lanes, fewer than 16; the others are zeros and their memory isn't read.
FREEHOLD_INLINE F f_load_few(const float* p, int count) {
    return _mm512_maskz_loadu_ps(count > 0 ? static_cast<__mmask16>((1u << count) - 1u) : __mmask16{0}, p);
}
FREEHOLD_INLINE F f_add(F a, F b) { return _mm512_add_ps(a, b); }
FREEHOLD_INLINE F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
FREEHOLD_INLINE F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
FREEHOLD_INLINE F f_div(F a, F b) { return _mm512_div_ps(a, b); }
FREEHOLD_INLINE F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
FREEHOLD_INLINE F f_max(F a, F b) { return _mm512_max_ps(a, b); }  // b if either is NaN
FREEHOLD_INLINE F f_min(F a, F b) { return _mm512_min_ps(a, b); }  // b if either is NaN
FREEHOLD_INLINE I f_bits(F a) { return _mm512_castps_si512(a); }
FREEHOLD_INLINE F f_from_bits(I a) { return _mm512_castsi512_ps(a); }
FREEHOLD_INLINE F f_from_int(I a) { return _mm512_cvtepi32_ps(a); }
FREEHOLD_INLINE M f_less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
FREEHOLD_INLINE M f_is_nan(F a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
FREEHOLD_INLINE F f_select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }
FREEHOLD_INLINE F f_half(const std::uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FREEHOLD_INLINE F f_bf16(const void* p) {
    const __m256i half = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

FREEHOLD_INLINE F f_bf16_even(__m512i line) { return _mm512_castsi512_ps(_mm512_slli_epi32(line, 16)); }
FREEHOLD_INLINE F f_bf16_odd(__m512i line) {
    return _mm512_castsi512_ps(_mm512_and_si512(line, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
}
FREEHOLD_INLINE float f_sum(F a) {
    const __m256 high = _mm512_extractf32x8_ps(a, 1);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
FREEHOLD_INLINE float f_highest(F a) { return _mm512_reduce_max_ps(a); }

FREEHOLD_INLINE I i_zero() { return _mm512_setzero_si512(); }
FREEHOLD_INLINE I i_set(int x) { return _mm512_set1_epi32(x); }
FREEHOLD_INLINE I i_load(const void* p) { return _mm512_loadu_si512(p); }
FREEHOLD_INLINE void i_store(void* p, I a) { _mm512_storeu_si512(p, a); }
FREEHOLD_INLINE I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
FREEHOLD_INLINE I i_sub(I a, I b) { return _mm512_sub_epi32(a, b); }
FREEHOLD_INLINE I i_and(I a, I b) { return _mm512_and_si512(a, b); }
FREEHOLD_INLINE I i_xor(I a, I b) { return _mm512_xor_si512(a, b); }
FREEHOLD_INLINE I i_max(I a, I b) { return _mm512_max_epi32(a, b); }
template <int N>
FREEHOLD_INLINE I i_shift_right(I a) {
    return _mm512_srli_epi32(a, N);
}
template <int N>
FREEHOLD_INLINE I i_shift_left(I a) {
    return _mm512_slli_epi32(a, N);
}
FREEHOLD_INLINE int i_sum(I a) { return _mm512_reduce_add_epi32(a); }
FREEHOLD_INLINE int i_highest(I a) { return _mm512_reduce_max_epi32(a); }
FREEHOLD_INLINE void i_store_bytes(std::int8_t* p, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
// Each lane as bf16 in its low half, zeros above; rounded to nearest even, NaN stays NaN.
FREEHOLD_INLINE I i_bf16(F a) {
    const __m512i bits = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return _mm512_srli_epi32(_mm512_mask_blend_epi32(f_is_nan(a), rounded, quiet), 16);
}
FREEHOLD_INLINE void f_store_bf16(std::uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(i_bf16(a)));
}
// 32 lanes as bf16, one after the other.
FREEHOLD_INLINE I i_bf16_pairs(F a, F b) {
    const __m256i low = _mm512_cvtepi32_epi16(i_bf16(a)), high = _mm512_cvtepi32_epi16(i_bf16(b));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// Lane i of row j becomes lane j of row i.
FREEHOLD_INLINE void i_transpose(I (&rows)[16]) {
    I pairs[16], quads[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // Of four rows: lanes 4 n + k in part n of vector k.
    for (int i = 0; i < 16; i += 4) {
        quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int k = 0; k < 4; ++k) {
        const I even_low = _mm512_shuffle_i32x4(quads[k], quads[k + 4], 0x88);
        const I odd_low = _mm512_shuffle_i32x4(quads[k], quads[k + 4], 0xdd);
        const I even_high = _mm512_shuffle_i32x4(quads[k + 8], quads[k + 12], 0x88);
        const I odd_high = _mm512_shuffle_i32x4(quads[k + 8], quads[k + 12], 0xdd);
        rows[k] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
        rows[k + 4] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
        rows[k + 8] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
        rows[k + 12] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
    }
}
// Of each lane the bytes whose bits are set in `bytes`; others in memory stay untouched, as another thread may write
// them meanwhile.
FREEHOLD_INLINE void i_store_bytes_of_lanes(void* p, I a, unsigned bytes) {
    _mm512_mask_storeu_epi8(p, 0x1111111111111111u * std::uint64_t{bytes}, a);
}
FREEHOLD_INLINE void i_store_lanes(void* p, I a, M lanes) { _mm512_mask_storeu_epi32(p, lanes, a); }
// Lane i is x[i], the rest is 0. Without a detour through memory, which would have to wait for the stores.
template <int N>
FREEHOLD_INLINE F f_collect(const float (&x)[N]) {
    static_assert(N <= 8);
    const auto at = [&](int i) FREEHOLD_INLINE_LAMBDA { return i < N ? x[i] : 0.0f; };
    return _mm512_zextps256_ps512(_mm256_setr_ps(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
}
// Reduces four vectors at once: lanes 4 n to 4 n + 3 are vector n's result.
template <class Join>
FREEHOLD_INLINE I i_join4(I a, I b, I c, I d, Join&& join) {
    const I ab = join(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    const I cd = join(_mm512_shuffle_i64x2(c, d, 0x44), _mm512_shuffle_i64x2(c, d, 0xee));
    const I four = join(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
    const I two = join(four, _mm512_shuffle_epi32(four, _MM_PERM_BADC));
    return join(two, _mm512_shuffle_epi32(two, _MM_PERM_CDAB));
}
FREEHOLD_INLINE I i_sum4(I a, I b, I c, I d) { return i_join4(a, b, c, d, i_add); }
FREEHOLD_INLINE I i_highest4(I a, I b, I c, I d) { return i_join4(a, b, c, d, i_max); }
// Lane i is vector i's result, for up to eight vectors.
template <int N, class Join>
FREEHOLD_INLINE F f_join_each(const F (&v)[N], Join&& join) {
    static_assert(N <= 8);
    const auto bits_join = [&](I a, I b)
                               FREEHOLD_INLINE_LAMBDA { return f_bits(join(f_from_bits(a), f_from_bits(b))); };
    const auto at = [&](int i) FREEHOLD_INLINE_LAMBDA { return f_bits(v[i < N ? i : N - 1]); };
    const I first = i_join4(at(0), at(1), at(2), at(3), bits_join);
    const I index = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    if constexpr (N <= 4) return f_from_bits(_mm512_permutexvar_epi32(index, first));
    const I second = i_join4(at(4), at(5), at(6), at(7), bits_join);
    return f_from_bits(_mm512_permutex2var_epi32(first, index, second));
}
template <int N>
FREEHOLD_INLINE F f_sum_each(const F (&v)[N]) {
    return f_join_each(v, f_add);
}
template <int N>
FREEHOLD_INLINE F f_highest_each(const F (&v)[N]) {
    return f_join_each(v, f_max);
}
// Lanes 4 Number to 4 Number + 3, four times.
template <int Number>
FREEHOLD_INLINE F f_repeat4(F a) {
    return _mm512_shuffle_f32x4(a, a, Number * 0x55);
}
// Lanes 0, 4, 8 and 12.
FREEHOLD_INLINE void i_store_every4(void* p, I a) {
    const I index = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_castsi512_si128(_mm512_permutexvar_epi32(index, a)));
}
FREEHOLD_INLINE M lanes_between(int low, int high) { return static_cast<M>(((1u << high) - 1u) & ~((1u << low) - 1u)); }
// Full 64-bit products of the even lanes; for the odd lanes shift them down by 32 bits first.
FREEHOLD_INLINE I i_mul_even(I a, I b) { return _mm512_mul_epu32(a, b); }
FREEHOLD_INLINE I i_high_to_even(I a) { return _mm512_srli_epi64(a, 32); }
// Lanes: even from the even lanes of a, odd from the even lanes of b.
FREEHOLD_INLINE I i_interleave_even(I a, I b) { return _mm512_mask_blend_epi32(0xaaaa, a, _mm512_slli_epi64(b, 32)); }
// Lanes: even from the odd lanes of a, odd from the odd lanes of b.
FREEHOLD_INLINE I i_interleave_odd(I a, I b) { return _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(a, 32), b); }
FREEHOLD_INLINE unsigned mask_bits(M m) { return m; }

// (a & mask) | b
FREEHOLD_INLINE I i_and_or(I a, I mask, I b) { return _mm512_ternarylogic_epi32(a, mask, b, 0xea); }
// Sixteen signed bytes.
FREEHOLD_INLINE I i_load_bytes(const std::uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// Every byte, an index below 16, becomes that entry of the table.
FREEHOLD_INLINE I i_look_up(I bytes, const std::uint8_t (&table)[16]) {
    const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), bytes);
}

// Weight nibbles as floats: a table look-up that also subtracts the layout's offset.
struct Nibbles {
    __m512 table;
};
template <int Offset>
FREEHOLD_INLINE Nibbles nibbles() {
    const __m512i index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return {_mm512_cvtepi32_ps(_mm512_sub_epi32(index, _mm512_set1_epi32(Offset)))};
}
template <int Shift>
FREEHOLD_INLINE F f_nibble(I line, const Nibbles& n) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(line, Shift), n.table);
}

// Four activations of one row, the same in every lane, and their exact integer product with a line of weights that are
// `Highest` at most.
template <int Highest>
struct Quad {
    __m512i bytes;
};
template <int Highest>
FREEHOLD_INLINE Quad<Highest> quad(const std::int8_t* p) {
    int four;
    std::memcpy(&four, p, sizeof four);
    return {_mm512_set1_epi32(four)};
}
template <int Highest>
FREEHOLD_INLINE I dot(I sum, I weights, const Quad<Highest>& x) {
    return _mm512_dpbusd_epi32(sum, weights, x.bytes);
}

// 16-bit integers in pairs, one pair a lane: (even, odd) in every lane; products / 2^15, rounded; sums of a pair's two
// products, and those added to `sum`; one of a lane's numbers in both places.
constexpr bool kIntegerScales = true;
FREEHOLD_INLINE I i_scaled_pairs(I a, I b) { return _mm512_mulhrs_epi16(a, b); }
FREEHOLD_INLINE I i_dot_pairs(I a, I b) { return _mm512_madd_epi16(a, b); }
FREEHOLD_INLINE I i_add_dot_pairs(I sum, I a, I b) { return _mm512_dpwssd_epi32(sum, a, b); }
FREEHOLD_INLINE I i_low_twice(I a) { return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(a, 16)); }
FREEHOLD_INLINE I i_high_twice(I a) { return _mm512_mask_blend_epi16(0x55555555, a, _mm512_srli_epi32(a, 16)); }
// Pairs: the low halves of `low`, the high halves of `high`.
FREEHOLD_INLINE I i_halves_of(I low, I high) { return _mm512_mask_blend_epi16(0xaaaaaaaa, low, high); }
FREEHOLD_INLINE void i_store_halves(std::int16_t* p, I a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
}
FREEHOLD_INLINE I i_select(M m, I yes, I no) { return _mm512_mask_blend_epi32(m, no, yes); }

// Integers that a loop adds to. GCC 12 moves and spills them around each dot product if their type has 64-bit lanes.
typedef std::int32_t LoopSum __attribute__((vector_size(64)));
FREEHOLD_INLINE LoopSum loop_sum(I a) { return reinterpret_cast<LoopSum>(a); }
FREEHOLD_INLINE I i_of(LoopSum a) { return reinterpret_cast<I>(a); }

// The lanes of the set bits.
FREEHOLD_INLINE M lanes_of(unsigned bits) { return static_cast<M>(bits); }

// Eight doubles. Never fused.
using D = __m512d;
FREEHOLD_INLINE D d_set(double x) { return _mm512_set1_pd(x); }
FREEHOLD_INLINE D d_from_low(F a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
FREEHOLD_INLINE D d_from_high(F a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
FREEHOLD_INLINE void d_store(double* p, D a) { _mm512_storeu_pd(p, a); }
FREEHOLD_INLINE D d_add(D a, D b) { return _mm512_add_pd(a, b); }
FREEHOLD_INLINE D d_sub(D a, D b) { return _mm512_sub_pd(a, b); }
FREEHOLD_INLINE D d_mul(D a, D b) { return _mm512_mul_pd(a, b); }
// `a` where x >= y, else 0.
FREEHOLD_INLINE D d_where_at_least(D x, D y, D a) {
    return _mm512_maskz_mov_pd(_mm512_cmp_pd_mask(x, y, _CMP_GE_OQ), a);
}
// 2^k, for integers k that were rounded by adding 1.5 * 2^52: they are in the low bits still.
FREEHOLD_INLINE D d_power(D shifted) {
    const __m512i exponent = _mm512_add_epi64(_mm512_castpd_si512(shifted), _mm512_set1_epi64(1023));
    return _mm512_castsi512_pd(_mm512_slli_epi64(exponent, 52));
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA

#if defined(__AVX512BF16__)
#include "avx512/bf16_dot.h"
#else
#include "kernels/without_bf16_dot.h"
#endif
