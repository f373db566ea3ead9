// What tiles of pairs of groups read and add up (pair_tiles.h): a cell of 64 inputs, and sums of its dot products.
#pragma once

#include "integer_scales.h"
#include "kernels/tile.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Dot products of a pair of groups, or of halves of one: in the lower and the higher half of each lane.
template <int Rows, int Vectors>
struct DotPairs {
    I at[Rows][Vectors];
};

template <const Layout& L, int Group, int Rows, int Vectors>
struct PairCell {
    using Record = ActivationRecord<Group>;
    static constexpr int kPairs = Record::kGroups / 2;
    const TileWeights& w;
    CellAt at;
    const std::uint8_t* records;
    std::ptrdiff_t stride;

    FREEHOLD_INLINE const Record& record(int row) const {
        return *reinterpret_cast<const Record*>(records + row * stride);
    }
    FREEHOLD_INLINE I line(int v, int number) const {
        return i_load(w.cell(v, at.cell) + L.line_at(w.panel_of(v), number));
    }
    FREEHOLD_INLINE I scales(int v) const { return i_load(integers(v)); }
    FREEHOLD_INLINE I minima(int v) const { return i_load(integers(v) + 2 * kLineBytes); }

  private:
    FREEHOLD_INLINE const std::uint8_t* integers(int v) const {
        return w.cell(v, at.cell) + L.halves_at() + w.panel_of(v) * kLineBytes;
    }
};

// A cell's scales for pair `Pair` of a record's groups, which are halves of the cell's if there are two pairs.
template <int Pair, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE I scales_of_pair(const PairCell<L, Group, Rows, Vectors>& cell, int v) {
    const I scales = cell.scales(v);
    if constexpr (PairCell<L, Group, Rows, Vectors>::kPairs == 1) return scales;
    return Pair == 0 ? i_low_twice(scales) : i_high_twice(scales);
}

// What a cell's scales and minima make of its dot products.
template <int Rows, int Vectors>
struct CellSums {
    I at[Rows][Vectors];
};

FREEHOLD_INLINE I pair_at(const std::int16_t* p) {
    int both;
    std::memcpy(&both, p, sizeof both);
    return i_set(both);
}

// Adds a pair to its cell, and the last one's cell to the tile. All that a row needs stands together and late: where
// the compiler keeps this order, few registers wait for the dot products (cpu-kernels.md, "The order of instructions").
template <int Pair, bool Last, const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE void add_pair(Sums<Rows, Vectors>& sums, CellSums<Rows, Vectors>& found,
                              const PairCell<L, Group, Rows, Vectors>& cell, const DotPairs<Rows, Vectors>& dots) {
    constexpr bool kStartsWithMinima = L.minimum && Pair == 0;
    I scales[Vectors], minima[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        scales[v] = scales_of_pair<Pair>(cell, v);
        if constexpr (kStartsWithMinima) minima[v] = cell.minima(v);
    });
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const auto& record = cell.record(r);
        const I row_scales = pair_at(record.scales + 2 * Pair);
        I row_sums;
        if constexpr (kStartsWithMinima) row_sums = pair_at(record.sums);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            I& sum = found.at[r][v];
            if constexpr (Pair == 0) sum = i_zero();
            if constexpr (kStartsWithMinima) sum = i_dot_pairs(minima[v], row_sums);
            sum = i_add_dot_pairs(sum, dots.at[r][v], i_scaled_pairs(scales[v], row_scales));
            if constexpr (Last) sums.at[r][v] = f_add(sums.at[r][v], f_from_int(sum));
        });
    });
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
