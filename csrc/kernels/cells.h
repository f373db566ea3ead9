// From packed cells to vectors: scales of a group, and the four bytes of an input quad. See layouts.h.
#pragma once

#include "kernels.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Where a cell lies in its strip.
struct CellAt {
    std::size_t block;
    std::size_t cell;
    int number;  // of the cell in its block
};

template <const Layout& L>
FREEHOLD_INLINE CellAt cell_at(std::size_t block, int number) {
    return {block, block + L.head_bytes() + static_cast<std::size_t>(number) * L.cell_bytes(), number};
}

struct GroupScales {
    F scale;
    F minimum;
};

// Of a panel's outputs, for a group of a cell. Two levels: products of factor and integer, exact.
template <const Layout& L>
FREEHOLD_INLINE GroupScales group_scales(const std::uint8_t* strip, const CellAt& at, int group, int panel) {
    const std::uint8_t* halves = strip + (L.two_level() ? at.block : at.cell + L.halves_at()) + panel * kPanel * 2;
    GroupScales found{f_half(halves), f_zero()};
    if constexpr (L.minimum) found.minimum = f_half(halves + kStrip * 2);
    const std::uint8_t* integers = strip + at.block + (at.number * L.cell_groups() + group) * kStrip + panel * kPanel;
    if constexpr (L.scales == Scales::bytes) {
        found.scale = f_mul(found.scale, f_from_int(i_load_bytes(integers + L.integers_at())));
        if constexpr (L.minimum) {
            found.minimum = f_mul(found.minimum, f_from_int(i_load_bytes(integers + L.integer_minima_at())));
        }
    } else if constexpr (L.scales == Scales::nibbles) {
        const I both = i_load_bytes(integers + L.integers_at());
        found.scale = f_mul(found.scale, f_from_int(i_and(both, i_set(15))));
        found.minimum = f_mul(found.minimum, f_from_int(i_and(i_shift_right<4>(both), i_set(15))));
    }
    return found;
}

// Shifts left by a negative N.
template <int N>
FREEHOLD_INLINE I i_moved_right(I x) {
    if constexpr (N == 0) return x;
    if constexpr (N > 0) return i_shift_right<N>(x);
    if constexpr (N < 0) return i_shift_left<-N>(x);
}

constexpr int byte_mask(int bits) { return 0x01010101 * ((1 << bits) - 1); }

// Quad `Number` of a plane of `Bits` a value that begins at `plane`, moved to bit `To` of its bytes; other bits are
// not cleared.
template <int Bits, int To, int Number>
FREEHOLD_INLINE I plane_quad(const std::uint8_t* plane) {
    return i_moved_right<Number / Bits * Bits - To>(i_load(plane + Number % Bits * kLineBytes));
}

// Quad `Number` of a cell, one input quad a lane; `panel` is the panel's first line.
template <const Layout& L, int Number>
FREEHOLD_INLINE I quad_weights(const std::uint8_t* panel) {
    I bytes = plane_quad<L.low_bits, 0, Number>(panel);
    if constexpr (L.high_bits != 0) {
        const I high = plane_quad<L.high_bits, L.low_bits, Number>(panel + L.low_bits * kLineBytes);
        bytes = i_and_or(bytes, i_set(byte_mask(L.low_bits)), i_and(high, i_set(byte_mask(L.high_bits) << L.low_bits)));
    } else if constexpr (L.low_bits != 8) {
        bytes = i_and(bytes, i_set(byte_mask(L.low_bits)));
    }
    if constexpr (L.table) bytes = i_look_up(bytes, kValueTable);
    return bytes;
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
