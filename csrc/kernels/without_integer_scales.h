// What integer scales ask of an instruction set, for those that don't have it: never called. Included by their vec.h.
#pragma once

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr bool kIntegerScales = false;

FREEHOLD_INLINE I i_scaled_pairs(I a, I) { return a; }
FREEHOLD_INLINE I i_dot_pairs(I a, I) { return a; }
FREEHOLD_INLINE I i_add_dot_pairs(I sum, I, I) { return sum; }
FREEHOLD_INLINE I i_low_twice(I a) { return a; }
FREEHOLD_INLINE I i_high_twice(I a) { return a; }
FREEHOLD_INLINE I i_halves_of(I low, I) { return low; }
FREEHOLD_INLINE void i_store_halves(std::int16_t*, I) {}
FREEHOLD_INLINE I i_select(M, I, I no) { return no; }

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
