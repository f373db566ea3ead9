// What attention in bf16 asks of an instruction set, for those that don't have it: never called. Included by their
// vec.h.
#pragma once

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr bool kBf16Dot = false;

FREEHOLD_INLINE F f_dot_bf16(F sum, I, I) { return sum; }
FREEHOLD_INLINE void f_store_halves(std::uint16_t*, F) {}
FREEHOLD_INLINE F f_sum_halves64(const std::uint16_t*) { return f_zero(); }
FREEHOLD_INLINE F f_exp2(F x) { return x; }
FREEHOLD_INLINE F f_exp2_for_bf16(F x) { return x; }

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
