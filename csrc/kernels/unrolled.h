// Loops over the rows and vectors of a tile, unrolled before the compiler decides what lives in registers. It keeps an
// array of sums in memory if an index is still a variable by then, which halves the speed of a kernel.
#pragma once

#include <utility>

#include "inlining.h"

namespace freehold::FREEHOLD_ISA {
namespace {

template <int I>
struct Index {
    FREEHOLD_INLINE constexpr operator int() const { return I; }
};

template <class Body, int... Indices>
FREEHOLD_INLINE void unrolled_over(Body& body, std::integer_sequence<int, Indices...>) {
    (body(Index<Indices>{}), ...);
}

template <int N, class Body>
FREEHOLD_INLINE void unrolled(Body&& body) {
    unrolled_over(body, std::make_integer_sequence<int, N>{});
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
