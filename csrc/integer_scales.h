// Scales as integers. What they replace, why, and what it costs: docs/decisions/cpu-kernels.md.
//
// Of a group of weights, nibbles that count from -8, with int8 activations:
//
//     weight = unit * (scale * (nibble - 8) + 8 * minimum)         unit: a power of two, of an output
//     activation = top / 2^14 * scale * number                     top: the largest scale of a row
//     sum of a group's numbers * their scale = top / 4 * sum
//
// with scales, minima and sums that are 16-bit integers. A group of 32 then adds to an output
//
//     2 * unit * top * (dot product * rounded(both scales / 2^15) + minimum * sum)
//
// of which all within the outer brackets is exact in 32 bits, two groups together. A weight's scale loses bits only
// where it is less than a sixteenth of its output's largest one.
//
// Weights of 8 bits, which count from -128 and have no minima, have dot products of up to 20 bits. Those are rounded to
// multiples of 16, which fit in 16 bits; a group then adds to an output
//
//     32 * unit * top * rounded(dot product / 16) * rounded(both scales / 2^15)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "inlining.h"
#include "layouts.h"

namespace freehold {

inline constexpr int kCentre = 8;  // that nibbles count from
inline constexpr int kHighestInteger = 32767;
inline constexpr float kTopScale = 16384.0f;  // the integer of a row's largest scale
inline constexpr float kTopSums = 4.0f;       // what sums of numbers with that scale are multiplied by
// A step of the sums above is worth so many units.
inline constexpr float kSumUnits = 32768.0f / kTopScale;
static_assert(kSumUnits == kCentre / kTopSums);

inline constexpr int kByteShift = 4;  // of dot products of 8-bit weights
FREEHOLD_INLINE constexpr float sum_units(const Layout& layout) {
    return layout.bits() == 8 ? kSumUnits * (1 << kByteShift) : kSumUnits;
}

constexpr double kHighestByteDot = (128.0 * 127 * kCellInputs + (1 << (kByteShift - 1))) / (1 << kByteShift);
static_assert(kHighestByteDot <= kHighestInteger);
static_assert(2 * kHighestByteDot * kTopScale < 2147483648.0);

constexpr double kHighestDot = static_cast<double>(kCentre) * 127 * kCellInputs;
static_assert(kHighestDot <= kHighestInteger);
static_assert(2 * (kHighestDot * kTopScale + kHighestInteger * kTopSums * 127.0 * kCellInputs) < 2147483648.0);

// What an output's scales and minima (of nibbles that count from -8) are multiples of.
class IntegerUnit {
  public:
    FREEHOLD_INLINE void see(float scale, float minimum) {
        const float eighth = std::fabs(minimum) * (1.0f / kCentre);
        largest_ = std::max(largest_, std::max(std::fabs(scale), eighth));
        sum_ += scale + minimum;
    }
    // After all have been seen: NaN if one was not finite, 0 if all were 0.
    FREEHOLD_INLINE float value() const {
        if (!std::isfinite(sum_)) return std::nanf("");
        if (largest_ == 0.0f) return 0.0f;
        int exponent;
        std::frexp(largest_, &exponent);  // largest < 2^exponent
        return std::ldexp(1.0f, exponent - 15);
    }

  private:
    float largest_ = 0.0f;
    float sum_ = 0.0f;  // finite if all are: they come from 16 bits
};

// The nearest multiple of a unit. `per_unit`: 1 / unit; 0 where that isn't a positive number.
FREEHOLD_INLINE std::int16_t integer_of(float x, float per_unit) {
    const float highest = static_cast<float>(kHighestInteger);
    return static_cast<std::int16_t>(std::lrint(std::min(std::max(x * per_unit, -highest), highest)));
}
FREEHOLD_INLINE float per_unit(float unit) { return unit > 0.0f ? 1.0f / unit : 0.0f; }

// A row that enters a linear layer, 64 inputs of it: what a tile reads of a row, side by side. `Group` inputs share a
// scale, 16 or 32. The starts of dot products take the nibbles' centre away (pair_tiles.h).
template <int Group>
struct ActivationRecord {
    static constexpr int kGroups = kPairInputs / Group;

    std::int8_t numbers[kPairInputs];
    std::int32_t nibble_starts[kGroups];
    std::int32_t byte_starts[kGroups];
    std::int16_t scales[kGroups];
    std::int16_t sums[2];  // of 32 inputs each
};
static_assert(sizeof(ActivationRecord<32>) == 88);
static_assert(sizeof(ActivationRecord<16>) == 108);

FREEHOLD_INLINE constexpr int record_bytes(int group) {
    return static_cast<int>(group == 32 ? sizeof(ActivationRecord<32>) : sizeof(ActivationRecord<16>));
}
// Of a row of `stride` inputs, a multiple of 32.
FREEHOLD_INLINE constexpr std::ptrdiff_t records_stride(int stride, int group) {
    return std::ptrdiff_t{round_up(stride, kPairInputs) / kPairInputs} * record_bytes(group);
}

}  // namespace freehold
