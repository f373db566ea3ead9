// From float lanes to integers that share one scale. Needs an ISA's vec.h before it.
#pragma once

#include "inlining.h"
#include "layouts.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// As integers these compare like the magnitudes; what isn't finite is above all numbers.
FREEHOLD_INLINE I magnitude_bits(F x) { return i_and(f_bits(x), i_set(0x7fffffff)); }

// x * factor, rounded to the nearest integer, ties to even; below 2^22.
FREEHOLD_INLINE I rounded(F x, F factor) {
    const F magic = f_set(12582912.0f);  // 1.5 * 2^23
    return i_sub(f_bits(f_add(f_mul(x, factor), magic)), f_bits(magic));
}

// The first `count` of 16 lanes, zeros behind them; none if it is negative.
FREEHOLD_INLINE F load_first(const float* p, int count) { return count >= kPanel ? f_load(p) : f_load_few(p, count); }

// Integers up to `highest` for numbers up to `magnitude`: number * factor, and back by integer * scale.
struct IntegerScale {
    float factor, scale;
};
FREEHOLD_INLINE IntegerScale integer_scale(float magnitude, float highest) {
    // NaN where a number isn't finite: an infinite scale could still make weights of zero.
    if (!(magnitude <= __FLT_MAX__)) return {0.0f, __builtin_nanf("")};
    if (magnitude < 1e-30f) return {0.0f, 0.0f};  // the factor must stay finite
    return {highest / magnitude, magnitude / highest};
}

// Of the `count` elements of a head.
FREEHOLD_INLINE IntegerScale head_scale(const float* head, int count, float highest) {
    I bits = i_zero();
    for (int i = 0; i < count; i += kPanel) bits = i_max(bits, magnitude_bits(load_first(head + i, count - i)));
    return integer_scale(bit_cast<float>(i_highest(bits)), highest);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
