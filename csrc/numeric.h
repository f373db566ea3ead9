// Scalar conversions between float32 and the 16-bit float types, without any ISA extension.
#pragma once

#include <cstdint>
#include <cstring>

#include "inlining.h"

namespace freehold {

template <class To, class From>
FREEHOLD_INLINE To bit_cast(const From& from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

FREEHOLD_INLINE float half_to_float(std::uint16_t h) {
    const std::uint32_t sign = std::uint32_t{h & 0x8000u} << 16;
    const std::uint32_t rest = h & 0x7fffu;
    if (rest >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
    // Multiplying by 2^112 moves the exponent's bias and is exact for normal and subnormal numbers alike.
    const float magnitude = bit_cast<float>(rest << 13) * bit_cast<float>(std::uint32_t{(127 + 112) << 23});
    return bit_cast<float>(bit_cast<std::uint32_t>(magnitude) | sign);
}

FREEHOLD_INLINE float bf16_to_float(std::uint16_t b) { return bit_cast<float>(std::uint32_t{b} << 16); }

// Round to nearest even; NaN stays NaN.
FREEHOLD_INLINE std::uint16_t float_to_bf16(float f) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace freehold
