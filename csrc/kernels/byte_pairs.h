// Dot products of pairs of groups of 8-bit weights: integer_scales.h has the arithmetic.
//
// They begin with half a step more than what takes the weights' offset away, so that the bits from a step up are the
// rounded 16-bit number. Shifts bring two of those to the halves of a lane.
#pragma once

#include "kernels/pair_cell.h"

namespace freehold::FREEHOLD_ISA {
namespace {

FREEHOLD_INLINE I rounded_pair(I first, I second) {
    return i_halves_of(i_shift_right<kByteShift>(first), i_shift_left<16 - kByteShift>(second));
}

template <int Number, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE DotPairs<Rows, Vectors> byte_dots(const PairCell<L, Group, Rows, Vectors>& cell) {
    DotPairs<Rows, Vectors> dots;
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const I start = i_set(cell.record(r).byte_starts[Number]);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { dots.at[r][v] = start; });
    });
    unrolled<Group / kQuad>([&](auto quad_number) FREEHOLD_INLINE_LAMBDA {
        constexpr int kInput = Number * Group + quad_number * kQuad;
        I weights[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { weights[v] = cell.line(v, kInput / kQuad); });
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const Quad<L.highest()> four = quad<L.highest()>(cell.record(r).numbers + kInput);
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                dots.at[r][v] = dot<L.highest()>(dots.at[r][v], weights[v], four);
            });
        });
    });
    return dots;
}

// Group `First` of the record becomes the lower half, the one behind it the higher. Lines are read in ascending order
// and prefetched group by group, since cells are long: int8_row.h says why.
template <int First, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE DotPairs<Rows, Vectors> byte_pairs(const PairCell<L, Group, Rows, Vectors>& cell) {
    constexpr int kGroups = ActivationRecord<Group>::kGroups;
    cell.w.template prefetch<First, kGroups>(cell.at);
    DotPairs<Rows, Vectors> pairs = byte_dots<First>(cell);
    cell.w.template prefetch<First + 1, kGroups>(cell.at);
    const DotPairs<Rows, Vectors> second = byte_dots<First + 1>(cell);
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>(
            [&](auto v) FREEHOLD_INLINE_LAMBDA { pairs.at[r][v] = rounded_pair(pairs.at[r][v], second.at[r][v]); });
    });
    return pairs;
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
