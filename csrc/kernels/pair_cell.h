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

// What a cell's scales and minima make of its dot products.
template <int Rows, int Vectors>
struct CellSums {
    I at[Rows][Vectors];

    // `scales`: of two groups, or twice of one; `row_scales(r)` those of the row.
    template <class RowScales>
    FREEHOLD_INLINE void add(const DotPairs<Rows, Vectors>& dots, const I (&scales)[Vectors], RowScales&& row_scales) {
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const I own = pair_at(row_scales(r));
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                at[r][v] = i_add_dot_pairs(at[r][v], dots.at[r][v], i_scaled_pairs(scales[v], own));
            });
        });
    }
    FREEHOLD_INLINE static I pair_at(const std::int16_t* p) {
        int both;
        std::memcpy(&both, p, sizeof both);
        return i_set(both);
    }
};

// A cell's scales, and what its minima add.
template <const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE CellSums<Rows, Vectors> minima_of(const PairCell<L, Group, Rows, Vectors>& cell, I (&scales)[Vectors]) {
    I minima[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        scales[v] = cell.scales(v);
        if constexpr (L.minimum) minima[v] = cell.minima(v);
    });
    CellSums<Rows, Vectors> found;
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            found.at[r][v] = i_zero();
            if constexpr (L.minimum) {
                found.at[r][v] = i_dot_pairs(minima[v], CellSums<Rows, Vectors>::pair_at(cell.record(r).sums));
            }
        });
    });
    return found;
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
