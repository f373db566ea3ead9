// Float64 logarithm and exponential with fixed bits: plain IEEE operations in the order that `freehold.sample.mathx`
// defines, so that Python and native code sample the same ids. Compile with -ffp-contract=off.
#pragma once

#include <cstdint>

#include "numeric.h"

namespace freehold {

inline constexpr double kLn2High = 0x1.62e42feep-1;
inline constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr double kRoundingShift = 0x1.8p+52;
inline constexpr double kExpLowestDouble = -708.0;

// x must be positive, normal and finite.
FREEHOLD_INLINE double log_fixed(double x) {
    constexpr std::uint64_t kFractionMask = 0x000fffffffffffffu;
    constexpr std::uint64_t kSqrt2Mantissa = 0x6a09e667f3bcdu;
    const std::uint64_t bits = bit_cast<std::uint64_t>(x);
    const std::uint64_t fraction = bits & kFractionMask;
    const bool halve = fraction >= kSqrt2Mantissa;
    const auto k = static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023 + (halve ? 1 : 0));
    const double m = bit_cast<double>(fraction | (halve ? 0x3fe0000000000000u : 0x3ff0000000000000u));
    const double f = m - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 2.0 / 21;
    for (int i = 8; i >= 0; --i) p = p * z + 2.0 / (2 * i + 3);
    return k * kLn2High + (2.0 * s + (s * (z * p) + k * kLn2Low));
}

inline constexpr double kInverseFactorials[14] = {
    1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
    1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
};

// x <= 0, minus infinity included.
FREEHOLD_INLINE double exp_fixed(double x) {
    if (!(x >= kExpLowestDouble)) return 0.0;
    const double k = (x * kLog2E + kRoundingShift) - kRoundingShift;
    const double r = (x - k * kLn2High) - k * kLn2Low;
    double p = kInverseFactorials[13];
    for (int i = 12; i >= 0; --i) p = p * r + kInverseFactorials[i];
    const auto power = static_cast<std::uint64_t>(static_cast<std::int64_t>(k) + 1023) << 52;
    return p * bit_cast<double>(power);
}

}  // namespace freehold
