// Sixteen lanes in the compiler's portable vectors: any processor, no intrinsics. See avx512/vec.h.
//
// Multiply-add is a multiplication and an addition here, each rounded, on every processor.
#pragma once

#include <cstdint>
#include <cstring>

#include "inlining.h"

#define FREEHOLD_ISA generic

namespace freehold::generic {
namespace {

typedef float F __attribute__((vector_size(64)));
typedef std::int32_t I __attribute__((vector_size(64)));
typedef std::uint32_t U __attribute__((vector_size(64)));
typedef std::uint64_t U64 __attribute__((vector_size(64)));
typedef std::int16_t S __attribute__((vector_size(64)));
using M = I;  // all bits of a lane set or clear

constexpr const char* kIsaName = "generic";
constexpr int kStripVectors = 1;
constexpr int kMaxTileRows = 2;
constexpr int kMaxQueryTile = 2;
constexpr int kScoreVectors = 1;

template <class V>
FREEHOLD_INLINE V load_as(const void* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

FREEHOLD_INLINE F f_zero() { return F{}; }
FREEHOLD_INLINE F f_set(float x) { return F{} + x; }
FREEHOLD_INLINE F f_load(const float* p) { return load_as<F>(p); }
FREEHOLD_INLINE void f_store(float* p, F a) { std::memcpy(p, &a, sizeof a); }
FREEHOLD_INLINE F f_load_few(const float* p, int count) {
    float lanes[16] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i];
    return f_load(lanes);
}
FREEHOLD_INLINE F f_add(F a, F b) { return a + b; }
FREEHOLD_INLINE F f_sub(F a, F b) { return a - b; }
FREEHOLD_INLINE F f_mul(F a, F b) { return a * b; }
FREEHOLD_INLINE F f_div(F a, F b) { return a / b; }
FREEHOLD_INLINE F f_fma(F a, F b, F c) { return a * b + c; }
FREEHOLD_INLINE F f_max(F a, F b) { return a > b ? a : b; }
FREEHOLD_INLINE F f_min(F a, F b) { return a < b ? a : b; }
FREEHOLD_INLINE I f_bits(F a) { return reinterpret_cast<I>(a); }
FREEHOLD_INLINE F f_from_bits(I a) { return reinterpret_cast<F>(a); }
FREEHOLD_INLINE F f_from_int(I a) { return __builtin_convertvector(a, F); }
FREEHOLD_INLINE M f_less(F a, F b) { return a < b; }
FREEHOLD_INLINE M f_is_nan(F a) { return a != a; }
FREEHOLD_INLINE F f_select(M m, F yes, F no) { return m ? yes : no; }

FREEHOLD_INLINE I widen_u16(const void* p) {
    typedef std::uint16_t Half __attribute__((vector_size(32)));
    return __builtin_convertvector(load_as<Half>(p), I);
}
FREEHOLD_INLINE F f_half(const std::uint8_t* p) {
    const I h = widen_u16(p);
    const I rest = h & 0x7fff;
    const F magnitude = f_from_bits(rest << 13) * f_from_bits(I{} + ((127 + 112) << 23));
    const I special = (rest >= 0x7c00) & 0x7f800000;  // infinity and NaN keep their exponent
    return f_from_bits(f_bits(magnitude) | special | ((h & 0x8000) << 16));
}
FREEHOLD_INLINE F f_bf16_even(I line) { return f_from_bits(line << 16); }
FREEHOLD_INLINE F f_bf16_odd(I line) { return f_from_bits(line & static_cast<std::int32_t>(0xffff0000)); }
FREEHOLD_INLINE F f_bf16(const void* p) { return f_from_bits(widen_u16(p) << 16); }

FREEHOLD_INLINE float f_sum(F a) {
    float lanes[16];
    std::memcpy(lanes, &a, sizeof lanes);
    for (int width = 8; width >= 1; width /= 2) {
        for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
    }
    return lanes[0];
}
FREEHOLD_INLINE float f_highest(F a) {
    float highest = a[0];
    for (int i = 1; i < 16; ++i) highest = highest > a[i] ? highest : a[i];
    return highest;
}

FREEHOLD_INLINE I i_zero() { return I{}; }
FREEHOLD_INLINE I i_set(int x) { return I{} + x; }
FREEHOLD_INLINE I i_load(const void* p) { return load_as<I>(p); }
FREEHOLD_INLINE void i_store(void* p, I a) { std::memcpy(p, &a, sizeof a); }
FREEHOLD_INLINE I i_add(I a, I b) { return reinterpret_cast<I>(reinterpret_cast<U>(a) + reinterpret_cast<U>(b)); }
FREEHOLD_INLINE I i_sub(I a, I b) { return reinterpret_cast<I>(reinterpret_cast<U>(a) - reinterpret_cast<U>(b)); }
FREEHOLD_INLINE I i_and(I a, I b) { return a & b; }
FREEHOLD_INLINE I i_xor(I a, I b) { return a ^ b; }
FREEHOLD_INLINE I i_max(I a, I b) { return a > b ? a : b; }
template <int N>
FREEHOLD_INLINE I i_shift_right(I a) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) >> N);
}
template <int N>
FREEHOLD_INLINE I i_shift_left(I a) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) << N);
}
FREEHOLD_INLINE int i_sum(I a) {
    int sum = 0;
    for (int i = 0; i < 16; ++i) sum += a[i];
    return sum;
}
FREEHOLD_INLINE int i_highest(I a) {
    int highest = a[0];
    for (int i = 1; i < 16; ++i) highest = highest > a[i] ? highest : a[i];
    return highest;
}
FREEHOLD_INLINE void i_store_bytes(std::int8_t* p, I a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(a[i]);
}
FREEHOLD_INLINE I i_bf16(F a) {
    const U bits = reinterpret_cast<U>(a);
    const U rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return reinterpret_cast<I>((a != a ? bits | 0x400000u : rounded) >> 16);
}
FREEHOLD_INLINE void f_store_bf16(std::uint16_t* p, F a) {
    const I halves = i_bf16(a);
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::uint16_t>(halves[i]);
}
FREEHOLD_INLINE I i_bf16_pairs(F a, F b) {
    std::uint16_t halves[32];
    f_store_bf16(halves, a);
    f_store_bf16(halves + 16, b);
    return i_load(halves);
}
FREEHOLD_INLINE void i_transpose(I (&rows)[16]) {
    std::int32_t lanes[16][16];
    std::memcpy(lanes, rows, sizeof lanes);
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 16; ++j) rows[i][j] = lanes[j][i];
    }
}
FREEHOLD_INLINE void i_store_bytes_of_lanes(void* p, I a, unsigned bytes) {
    std::uint8_t all[sizeof(I)];
    std::memcpy(all, &a, sizeof all);
    for (unsigned i = 0; i < sizeof all; ++i) {
        if ((bytes >> i % 4 & 1) != 0) static_cast<std::uint8_t*>(p)[i] = all[i];
    }
}
FREEHOLD_INLINE void i_store_lanes(void* p, I a, M lanes) {
    for (int i = 0; i < 16; ++i) {
        const std::int32_t lane = a[i];
        if (lanes[i] != 0) std::memcpy(static_cast<std::int32_t*>(p) + i, &lane, sizeof lane);
    }
}
// Lane i is x[i], the rest is 0.
template <int N>
FREEHOLD_INLINE F f_collect(const float (&x)[N]) {
    F all{};
    for (int i = 0; i < N; ++i) all[i] = x[i];
    return all;
}
// Lane i is vector i's result.
template <int N>
FREEHOLD_INLINE F f_sum_each(const F (&v)[N]) {
    F all{};
    for (int i = 0; i < N; ++i) all[i] = f_sum(v[i]);
    return all;
}
template <int N>
FREEHOLD_INLINE F f_highest_each(const F (&v)[N]) {
    F all{};
    for (int i = 0; i < N; ++i) all[i] = f_highest(v[i]);
    return all;
}
FREEHOLD_INLINE I i_quads(int a, int b, int c, int d) { return I{a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d}; }
FREEHOLD_INLINE I i_sum4(I a, I b, I c, I d) { return i_quads(i_sum(a), i_sum(b), i_sum(c), i_sum(d)); }
FREEHOLD_INLINE I i_highest4(I a, I b, I c, I d) {
    return i_quads(i_highest(a), i_highest(b), i_highest(c), i_highest(d));
}
template <int Number>
FREEHOLD_INLINE F f_repeat4(F a) {
    F all;
    for (int i = 0; i < 16; ++i) all[i] = a[4 * Number + i % 4];
    return all;
}
FREEHOLD_INLINE void i_store_every4(void* p, I a) {
    const std::int32_t four[4] = {a[0], a[4], a[8], a[12]};
    std::memcpy(p, four, sizeof four);
}
FREEHOLD_INLINE M lanes_between(int low, int high) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (lane >= low) & (lane < high);
}
FREEHOLD_INLINE I i_mul_even(I a, I b) {
    const U64 x = reinterpret_cast<U64>(a) & 0xffffffffu;
    const U64 y = reinterpret_cast<U64>(b) & 0xffffffffu;
    return reinterpret_cast<I>(x * y);
}
FREEHOLD_INLINE I i_high_to_even(I a) { return reinterpret_cast<I>(reinterpret_cast<U64>(a) >> 32); }
FREEHOLD_INLINE I i_interleave_even(I a, I b) {
    const U64 low = reinterpret_cast<U64>(a) & 0xffffffffu;
    return reinterpret_cast<I>(low | reinterpret_cast<U64>(b) << 32);
}
FREEHOLD_INLINE I i_interleave_odd(I a, I b) {
    const U64 high = reinterpret_cast<U64>(b) >> 32 << 32;
    return reinterpret_cast<I>(reinterpret_cast<U64>(a) >> 32 | high);
}
FREEHOLD_INLINE unsigned mask_bits(M m) {
    unsigned bits = 0;
    for (int i = 0; i < 16; ++i) bits |= static_cast<unsigned>(m[i] & 1) << i;
    return bits;
}

FREEHOLD_INLINE I i_and_or(I a, I mask, I b) { return (a & mask) | b; }
FREEHOLD_INLINE I i_load_bytes(const std::uint8_t* p) {
    typedef std::int8_t Bytes __attribute__((vector_size(16)));
    return __builtin_convertvector(load_as<Bytes>(p), I);
}
FREEHOLD_INLINE I i_look_up(I bytes, const std::uint8_t (&table)[16]) {
    std::uint8_t lanes[sizeof(I)];
    std::memcpy(lanes, &bytes, sizeof lanes);
    for (std::uint8_t& lane : lanes) lane = table[lane];
    return load_as<I>(lanes);
}

struct Nibbles {
    int offset;
};
template <int Offset>
FREEHOLD_INLINE Nibbles nibbles() {
    return {Offset};
}
template <int Shift>
FREEHOLD_INLINE F f_nibble(I line, const Nibbles& n) {
    return f_from_int((i_shift_right<Shift>(line) & 15) - n.offset);
}

// Products of an unsigned and a signed byte fit in 16 bits (255 * 127), their sums are taken in 32.
template <int Highest>
struct Quad {
    S even, odd;
};
template <int Highest>
FREEHOLD_INLINE Quad<Highest> quad(const std::int8_t* p) {
    const int even = (p[0] & 0xffff) | static_cast<int>(static_cast<unsigned>(p[2]) << 16);
    const int odd = (p[1] & 0xffff) | static_cast<int>(static_cast<unsigned>(p[3]) << 16);
    return {reinterpret_cast<S>(i_set(even)), reinterpret_cast<S>(i_set(odd))};
}
FREEHOLD_INLINE I sum_pairs(S products) {
    const I both = reinterpret_cast<I>(products);
    return (i_shift_left<16>(both) >> 16) + (both >> 16);
}
template <int Highest>
FREEHOLD_INLINE I dot(I sum, I weights, const Quad<Highest>& x) {
    const S even = reinterpret_cast<S>(weights & 0x00ff00ff) * x.even;
    const S odd = reinterpret_cast<S>(i_shift_right<8>(weights) & 0x00ff00ff) * x.odd;
    return sum + sum_pairs(even) + sum_pairs(odd);
}

using LoopSum = I;
FREEHOLD_INLINE LoopSum loop_sum(I x) { return x; }
FREEHOLD_INLINE I i_of(LoopSum x) { return x; }

FREEHOLD_INLINE M lanes_of(unsigned bits) {
    const I lane = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    return (i_set(static_cast<int>(bits)) & lane) == lane;
}

typedef double D __attribute__((vector_size(64)));
typedef std::int64_t I64 __attribute__((vector_size(64)));
FREEHOLD_INLINE D d_set(double x) { return D{} + x; }
FREEHOLD_INLINE D d_from_low(F a) {
    typedef float Half __attribute__((vector_size(32)));
    return __builtin_convertvector(load_as<Half>(&a), D);
}
FREEHOLD_INLINE D d_from_high(F a) {
    typedef float Half __attribute__((vector_size(32)));
    return __builtin_convertvector(load_as<Half>(reinterpret_cast<const float*>(&a) + 8), D);
}
FREEHOLD_INLINE void d_store(double* p, D a) { std::memcpy(p, &a, sizeof a); }
FREEHOLD_INLINE D d_add(D a, D b) { return a + b; }
FREEHOLD_INLINE D d_sub(D a, D b) { return a - b; }
FREEHOLD_INLINE D d_mul(D a, D b) { return a * b; }
FREEHOLD_INLINE D d_where_at_least(D x, D y, D a) {
    return reinterpret_cast<D>(reinterpret_cast<I64>(x >= y) & reinterpret_cast<I64>(a));
}
FREEHOLD_INLINE D d_power(D shifted) { return reinterpret_cast<D>((reinterpret_cast<U64>(shifted) + 1023) << 52); }

}  // namespace
}  // namespace freehold::generic

#include "kernels/without_bf16_dot.h"
#include "kernels/without_integer_scales.h"
