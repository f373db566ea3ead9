// A single row with int8 activations waits for memory, so all that counts is how its weights are asked for. A processor
// fetches ahead of lines that are read in ascending order, faster than prefetch instructions can, which share a core's
// few slots for misses of the first level. So a cell is read from its first line to its last: values panel by panel,
// then scales. Sums are those of a tile of more rows: dot products are exact, and multiply-adds follow in its order.
#pragma once

#include "kernels/int8_inputs.h"
#include "kernels/tile.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Only a tile of whole strips can read that way. Panel by panel, with AVX2, a first try was slower.
constexpr bool kAscending = kStripVectors * kPanel == kStrip;

// Bridges the borders of pages, where a processor's own fetching ahead stops. Prefetches half a page ahead disturb it:
// two threads that jump from matrix to matrix lose a tenth by 2 KiB, and whoever reads on and on a third by 4 KiB.
constexpr int kRowPrefetchBytes = 1024;

// Adds a group of a cell: dot products of each part that has one activation scale, then minimum and scales.
template <const Layout& L, int PartInputs, int Group, int Vectors>
FREEHOLD_INLINE void int8_row_group(Sums<1, Vectors>& sums, const TileWeights& w, const CellAt& at, const Int8Rows& x,
                                    int group) {
    constexpr int kParts = L.group / PartInputs;
    constexpr int kQuads = PartInputs / kQuad;
    I dots[Vectors][kParts];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        const std::uint8_t* panel = w.cell(v, at.cell) + w.panel_of(v) * L.panel_bytes();
        unrolled<kParts>([&](auto p) FREEHOLD_INLINE_LAMBDA {
            const int part = group * kParts + p;
            dots[v][p] = dot_start<L>(x.sums[part]);
            unrolled<kQuads>([&](auto number) FREEHOLD_INLINE_LAMBDA {
                const Quad<L.highest()> four = quad<L.highest()>(x.q + part * PartInputs + number * kQuad);
                constexpr int kNumber = (Group * kParts + p) * kQuads + number;
                dots[v][p] = dot<L.highest()>(dots[v][p], quad_weights<L, kNumber>(panel), four);
            });
        });
    });
    const CellScales<L, Vectors> scales(w, at, Group);
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        F sum = sums.at[0][v];
        if constexpr (L.minimum) sum = f_fma(f_set(x.minimum_sums[group]), scales.minimum[v], sum);
        unrolled<kParts>([&](auto p) FREEHOLD_INLINE_LAMBDA {
            const F scale = f_set(x.scale[group * kParts + p]);
            sum = f_fma(f_mul(f_from_int(dots[v][p]), scale), scales.scale[v], sum);
        });
        sums.at[0][v] = sum;
    });
}

template <const Layout& L, int PartInputs, int Vectors>
void int8_row(const LinearCall& call, const TileWeights& w, int row, float* out) {
    Sums<1, Vectors> sums;
    sums.prefetch(call, out);
    const Int8Rows x = int8_rows<L, PartInputs>(*call.input, row);
    int group = 0;
    for (std::size_t block = 0; block < w.strip_bytes; block += L.block_bytes()) {
        for (int number = 0; number < L.num_cells(); ++number, group += L.cell_groups()) {
            const CellAt at = cell_at<L>(block, number);
            w.prefetch(at);
            unrolled<L.cell_groups()>(
                [&](auto g) FREEHOLD_INLINE_LAMBDA { int8_row_group<L, PartInputs, g>(sums, w, at, x, group + g); });
        }
    }
    sums.store(call, out);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
