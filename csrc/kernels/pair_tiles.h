// Tiles of linear layers over weights with integer scales, for int8 activations: integer_scales.h has the arithmetic.
//
// Dot products, multiplications and multiply-adds share the processor's two multipliers, so what counts is how many of
// them there are beside the 16 dot products of a cell: two with a scale for each 32 activations, and one of minima. Two
// dot products stand in the halves of a 32-bit lane for that; nibble_pairs.h and byte_pairs.h bring them there.
#pragma once

#include "kernels/byte_pairs.h"
#include "kernels/nibble_pairs.h"
#include "kernels/pair_cell.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Of a tile: sums, dot products of a pair and what these make of a cell stay in registers. Six rows are no faster.
constexpr int kMostPairRows = 4;

template <const Layout& L>
constexpr bool kOfBytes = L.bits() == 8;

// Pair `Pair` of a record's groups.
template <int Pair, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE DotPairs<Rows, Vectors> dot_pairs(const PairCell<L, Group, Rows, Vectors>& cell) {
    if constexpr (kOfBytes<L>) {
        return byte_pairs<2 * Pair>(cell);
    } else {
        return nibble_pairs<2 * Pair>(cell);
    }
}

// All pairs of a single row, lines in ascending order.
template <const Layout& L, int Group, int Vectors, int Pairs>
FREEHOLD_INLINE void dot_pairs_of_row(const PairCell<L, Group, 1, Vectors>& cell, DotPairs<1, Vectors> (&dots)[Pairs]) {
    if constexpr (kOfBytes<L>) {
        unrolled<Pairs>([&](auto p) FREEHOLD_INLINE_LAMBDA { dots[p] = byte_pairs<2 * p>(cell); });
    } else {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            I pairs[Pairs];
            nibble_pairs_of_panel(cell, v, pairs);
            unrolled<Pairs>([&](auto p) FREEHOLD_INLINE_LAMBDA { dots[p].at[0][v] = pairs[p]; });
        });
    }
}

template <const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE void pair_cell(Sums<Rows, Vectors>& sums, const PairCell<L, Group, Rows, Vectors>& cell) {
    constexpr int kPairs = PairCell<L, Group, Rows, Vectors>::kPairs;
    DotPairs<Rows, Vectors> of_row[kPairs];
    if constexpr (Rows == 1) dot_pairs_of_row(cell, of_row);
    CellSums<Rows, Vectors> found;
    unrolled<kPairs>([&](auto p) FREEHOLD_INLINE_LAMBDA {
        constexpr bool kLast = p == kPairs - 1;
        if constexpr (Rows == 1) {
            add_pair<p, kLast>(sums, found, cell, of_row[p]);
        } else {
            const DotPairs<Rows, Vectors> dots = dot_pairs<p>(cell);
            add_pair<p, kLast>(sums, found, cell, dots);
        }
    });
}

template <const Layout& L, int Group, int Rows, int Vectors>
void pair_tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    Sums<Rows, Vectors> sums;
    sums.prefetch(call, out);
    const std::ptrdiff_t stride = records_stride(call.input->stride, Group);
    const std::uint8_t* records = call.input->records + row * stride;
    w.prefetch_units();
    for (std::size_t block = L.units_bytes(); block < w.strip_bytes; block += L.block_bytes()) {
        const CellAt at = cell_at<L>(block, 0);
        if constexpr (!kOfBytes<L>) w.prefetch(at);
        fetch_background<Rows>(call);
        pair_cell(sums, PairCell<L, Group, Rows, Vectors>{w, at, records, stride});
        records += sizeof(ActivationRecord<Group>);
    }
    F units[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        units[v] = f_mul(f_bf16(w.cell(v, 0) + w.panel_of(v) * kPanel * 2), f_set(sum_units(L)));
    });
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const F top = f_set(call.input->tops[row + r]);
        unrolled<Vectors>([&](auto v)
                              FREEHOLD_INLINE_LAMBDA { sums.at[r][v] = f_mul(f_mul(sums.at[r][v], units[v]), top); });
    });
    sums.store(call, out);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
