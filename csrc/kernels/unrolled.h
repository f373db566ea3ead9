// Loops over the rows and vectors of a tile, unrolled before the compiler decides what lives in registers. It keeps an
// array of sums in memory if an index is still a variable by then, which halves the speed of a kernel.
#pragma once

#include "inlining.h"

namespace freehold::FREEHOLD_ISA {
namespace {

template <int I>
struct Index {
    FREEHOLD_INLINE constexpr operator int() const { return I; }
};

template <int N, int I = 0, class Body>
FREEHOLD_INLINE void unrolled(Body&& body) {
    if constexpr (I < N) {
        body(Index<I>{});
        unrolled<N, I + 1>(body);
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
