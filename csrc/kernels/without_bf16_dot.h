// What attention in bf16 asks of an instruction set, for those that don't have it: never called. Included by their
// vec.h.
#pragma once

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr bool kBf16Dot = false;

struct HalfSum {};
FREEHOLD_INLINE void add_halves(HalfSum&, std::uint16_t*, F) {}
FREEHOLD_INLINE float total_of(HalfSum) { return 0.0f; }
FREEHOLD_INLINE F f_dot_bf16(F sum, I, I) { return sum; }
FREEHOLD_INLINE F f_exp2(F x) { return x; }

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
