// Dot products of pairs of groups of nibbles: integer_scales.h has the arithmetic.
//
// The one of a lane's higher half is computed first and shifted up; the lower one is added to 2^15, so that it never
// borrows from the higher one, and the sign bit is put right at the end. Nibbles of the high half of a byte aren't
// shifted down where the shift can do that: dot products are 16 times as large then.
#pragma once

#include "kernels/pair_cell.h"

namespace freehold::FREEHOLD_ISA {
namespace {

enum class NibbleAt { low, high, high_in_place };

template <NibbleAt At>
FREEHOLD_INLINE I nibbles_of(I line) {
    if constexpr (At == NibbleAt::low) return i_and(line, i_set(0x0f0f0f0f));
    if constexpr (At == NibbleAt::high) return i_and(i_shift_right<4>(line), i_set(0x0f0f0f0f));
    return i_and(line, i_set(static_cast<int>(0xf0f0f0f0)));
}

// The part of a cell that has one activation scale: where its inputs stand.
template <int Group, int Number>
struct NibbleGroup {
    static constexpr int kFirstInput = Number * Group;
    static constexpr int kFirstLine = kFirstInput % kCellInputs / kQuad;
    // Only what becomes a higher half can be shifted down later.
    static constexpr NibbleAt kAt = kFirstInput < kCellInputs ? NibbleAt::low
                                    : Number % 2 == 0         ? NibbleAt::high
                                                              : NibbleAt::high_in_place;
    static constexpr int kShiftToHigh = kAt == NibbleAt::high_in_place ? 12 : 16;
};

template <int Number, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE void add_nibble_dots(DotPairs<Rows, Vectors>& dots, const PairCell<L, Group, Rows, Vectors>& cell) {
    using Place = NibbleGroup<Group, Number>;
    unrolled<Group / kQuad>([&](auto quad_number) FREEHOLD_INLINE_LAMBDA {
        I weights[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            weights[v] = nibbles_of<Place::kAt>(cell.line(v, Place::kFirstLine + quad_number));
        });
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const Quad<L.highest()> four =
                quad<L.highest()>(cell.record(r).numbers + Place::kFirstInput + quad_number * kQuad);
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                dots.at[r][v] = dot<L.highest()>(dots.at[r][v], weights[v], four);
            });
        });
    });
}

FREEHOLD_INLINE I without_bias(I pairs) { return i_xor(pairs, i_set(0x8000)); }

// Group `First` of the record becomes the lower half, the one behind it the higher.
template <int First, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE DotPairs<Rows, Vectors> nibble_pairs(const PairCell<L, Group, Rows, Vectors>& cell) {
    DotPairs<Rows, Vectors> dots;
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const I start = i_set(cell.record(r).nibble_starts[First + 1]);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { dots.at[r][v] = start; });
    });
    add_nibble_dots<First + 1>(dots, cell);
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const I start = i_set(cell.record(r).nibble_starts[First]);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            constexpr int kShift = NibbleGroup<Group, First + 1>::kShiftToHigh;
            dots.at[r][v] = i_add(i_shift_left<kShift>(dots.at[r][v]), start);
        });
    });
    add_nibble_dots<First>(dots, cell);
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { dots.at[r][v] = without_bias(dots.at[r][v]); });
    });
    return dots;
}

// A panel's dot products with one row. Each line is loaded once, lines in ascending order: int8_row.h says why.
template <const Layout& L, int Group, int Vectors>
FREEHOLD_INLINE void nibble_pairs_of_panel(const PairCell<L, Group, 1, Vectors>& cell, int v,
                                           I (&pairs)[ActivationRecord<Group>::kGroups / 2]) {
    const ActivationRecord<Group>& record = cell.record(0);
    constexpr int kGroups = ActivationRecord<Group>::kGroups;
    constexpr int kHighest = L.highest();
    I dots[kGroups];
    unrolled<kGroups>([&](auto g) FREEHOLD_INLINE_LAMBDA { dots[g] = i_set(record.nibble_starts[g]); });
    unrolled<L.plane_lines(L.low_bits)>([&](auto number) FREEHOLD_INLINE_LAMBDA {
        constexpr int kInput = number * kQuad;
        constexpr int kLow = kInput / Group, kHigh = (kInput + kCellInputs) / Group;
        const I line = cell.line(v, number);
        const std::int8_t* x = record.numbers + kInput;
        const I low = nibbles_of<NibbleGroup<Group, kLow>::kAt>(line);
        const I high = nibbles_of<NibbleGroup<Group, kHigh>::kAt>(line);
        dots[kLow] = dot<kHighest>(dots[kLow], low, quad<kHighest>(x));
        dots[kHigh] = dot<kHighest>(dots[kHigh], high, quad<kHighest>(x + kCellInputs));
    });
    unrolled<kGroups / 2>([&](auto p) FREEHOLD_INLINE_LAMBDA {
        constexpr int kShift = NibbleGroup<Group, 2 * p + 1>::kShiftToHigh;
        pairs[p] = without_bias(i_add(i_shift_left<kShift>(dots[2 * p + 1]), dots[2 * p]));
    });
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
