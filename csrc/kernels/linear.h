// Linear layers over packed weights. One template serves one row and many: a tile holds `Rows` rows and `Vectors`
// panels of outputs in registers, and what it adds to an output, and in which order, is the same for every tile shape.
//
// float activations: see float_tiles.h.
// int8 activations: per group, ascending, one multiply-add of the minimum (if any); then for each of its parts that has
//     one activation scale an exact integer dot product and one multiply-add of the scales. One row: see int8_row.h.
// int8 activations and integer scales: see pair_tiles.h.
#pragma once

#include "kernels/float_tiles.h"
#include "kernels/int8_inputs.h"
#include "kernels/int8_row.h"
#include "kernels/pair_tiles.h"
#include "kernels/tile.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Of a few rows, or of one with float activations: half of it costs a tenth of the speed.
constexpr int kPrefetchBytes = 8192;

// Adds a part of a cell, with one activation scale: exact integer dot products, then one multiply-add of both scales.
template <const Layout& L, int PartInputs, int Part, int Rows, int Vectors>
FREEHOLD_INLINE void int8_part(Sums<Rows, Vectors>& sums, const TileWeights& w, std::size_t cell,
                               const CellScales<L, Vectors>& scales, const Int8Rows& x, int part) {
    constexpr int kQuads = PartInputs / kQuad;
    constexpr int kHighest = L.highest();
    I dots[Rows][Vectors];
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const I start = dot_start<L>(x.sums[r * x.scale_stride + part]);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { dots[r][v] = start; });
    });
    unrolled<kQuads>([&](auto number) FREEHOLD_INLINE_LAMBDA {
        I weights[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            weights[v] = quad_weights<L, Part * kQuads + number>(w.cell(v, cell) + w.panel_of(v) * L.panel_bytes());
        });
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const std::int8_t* q = x.q + static_cast<std::ptrdiff_t>(r) * x.stride;
            const Quad<kHighest> four = quad<kHighest>(q + part * PartInputs + number * kQuad);
            unrolled<Vectors>([&](auto v)
                                  FREEHOLD_INLINE_LAMBDA { dots[r][v] = dot<kHighest>(dots[r][v], weights[v], four); });
        });
    });
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const F scale = f_set(x.scale[r * x.scale_stride + part]);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            sums.at[r][v] = f_fma(f_mul(f_from_int(dots[r][v]), scale), scales.scale[v], sums.at[r][v]);
        });
    });
}

template <const Layout& L, int PartInputs, int Rows, int Vectors>
FREEHOLD_INLINE void int8_cell(Sums<Rows, Vectors>& sums, const TileWeights& w, const CellAt& at, const Int8Rows& x,
                               int cell_number) {
    constexpr int kParts = L.group / PartInputs;
    unrolled<L.cell_groups()>([&](auto g) FREEHOLD_INLINE_LAMBDA {
        const int group = cell_number * L.cell_groups() + g;
        const CellScales<L, Vectors> scales(w, at, g);
        if constexpr (L.minimum) {
            unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
                const F minimum_sum = f_set(x.minimum_sums[r * x.minimum_stride + group]);
                unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                    sums.at[r][v] = f_fma(minimum_sum, scales.minimum[v], sums.at[r][v]);
                });
            });
        }
        unrolled<kParts>([&](auto part) FREEHOLD_INLINE_LAMBDA {
            int8_part<L, PartInputs, g * kParts + part>(sums, w, at.cell, scales, x, group * kParts + part);
        });
    });
}

template <const Layout& L, int PartInputs, int Rows, int Vectors>
void int8_tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    Sums<Rows, Vectors> sums;
    sums.prefetch(call, out);
    const Int8Rows x = int8_rows<L, PartInputs>(*call.input, row);
    int cell_number = 0;
    for (std::size_t block = 0; block < w.strip_bytes; block += L.block_bytes()) {
        for (int number = 0; number < L.num_cells(); ++number, ++cell_number) {
            const CellAt at = cell_at<L>(block, number);
            w.prefetch(at);
            fetch_background<Rows>(call);
            int8_cell<L, PartInputs>(sums, w, at, x, cell_number);
        }
    }
    sums.store(call, out);
}

// `Part` is the inputs that share an int8 activation scale; 0 for float activations.
template <const Layout& L, int Part, int Rows, int Vectors>
FREEHOLD_INLINE void tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    if constexpr (L.integer_scales()) {
        pair_tile<L, Part, Rows, Vectors>(call, w, row, out);
    } else if constexpr (!L.quantized()) {
        plain_tile<L, Rows, Vectors>(call, w, row, out);
    } else if constexpr (Part != 0 && Rows == 1 && kAscending) {
        int8_row<L, Part, Vectors>(call, w, row, out);
    } else if constexpr (Part != 0) {
        int8_tile<L, Part, Rows, Vectors>(call, w, row, out);
    } else {
        if constexpr (kNibbles<L> || L.low_bits == 8) {
            float_tile<L, Rows, Vectors>(call, w, row, out);
        } else {
            const CellUnpacker<Vectors> from{unpack_cell<L, Vectors>, L.offset, L.num_cells(),
                                             static_cast<std::size_t>(L.block_bytes())};
            unpacking_tile<Rows, Vectors>(call, w, row, out, from);
        }
    }
}

template <const Layout& L>
constexpr int kHighestTile = L.integer_scales() ? kMostPairRows : kMaxTileRows;

// Rows of the highest tile for `rows` rows. Few heights, since each is a kernel of its own. `Part`: see `tile`.
template <const Layout& L, int Part>
constexpr int tile_height(int rows) {
    constexpr int kMost = kHighestTile<L>;
    constexpr int kMiddle = Part != 0 ? kMost * 2 / 3 : kMost / 2;
    constexpr int kHeights[] = {kMost, kMiddle, Part != 0 ? kMost / 3 : 1};
    for (const int height : kHeights) {
        if (height > 0 && rows >= height) return height;
    }
    return 1;
}

// One tile of `rows` rows, a height that there is.
template <const Layout& L, int Part, int Rows>
FREEHOLD_INLINE void tile_of(int rows, const LinearCall& call, const TileWeights& w, int row, float* out) {
    if (rows == Rows) return tile<L, Part, Rows, kStripVectors>(call, w, row, out);
    if constexpr (Rows > 1) tile_of<L, Part, tile_height<L, Part>(Rows - 1)>(rows, call, w, row, out);
}

// All rows of the call over one strip.
template <const Layout& L, int Part>
void strip_rows(const LinearCall& call, TileWeights w, float* out) {
    const int num_rows = call.row_end - call.row_begin;
    const bool single_tile = tile_height<L, Part>(num_rows) == num_rows;
    const std::ptrdiff_t near = kAscending && Part != 0 && num_rows == 1 ? kRowPrefetchBytes : kPrefetchBytes;
    w.prefetch_distance = single_tile ? near : static_cast<std::ptrdiff_t>(w.strip_bytes);
    // The highest tiles fetch what the next strip needs, each its share.
    const int num_sharing = num_rows < kHighestTile<L> ? 1 : num_rows / kHighestTile<L>;
    const int share = w.panel == 0 ? (kPrefetchLines<L> + num_sharing - 1) / num_sharing : 0;
    for (int row = call.row_begin; row < call.row_end;) {
        w.prefetch_end = w.prefetch_begin + share < kPrefetchLines<L> ? w.prefetch_begin + share : kPrefetchLines<L>;
        const int rows = tile_height<L, Part>(call.row_end - row);
        float* to = out + static_cast<std::ptrdiff_t>(row) * call.out_stride;
        tile_of<L, Part, kHighestTile<L>>(rows, call, w, row, to);
        row += rows;
        w.prefetch_begin = w.prefetch_end;
    }
}

template <LayoutId Id, int Part>
void linear_layout(const LinearCall& call) {
    static constexpr const Layout& L = kLayouts[static_cast<int>(Id)];
    const bool single_row = call.row_end - call.row_begin == 1;
    const std::uint8_t* end = call.weights + call.strip_bytes * static_cast<std::size_t>(call.strip_end);
    const std::uint8_t* next = call.next != nullptr ? call.next : end;
    for (int strip = call.strip_begin; strip < call.strip_end; ++strip) {
        const std::uint8_t* weights = call.weights + call.strip_bytes * static_cast<std::size_t>(strip);
        float* out = call.out + static_cast<std::ptrdiff_t>(strip) * kStrip;
        if constexpr (Part == 0 && kStripVectors == 2) {
            // One row has too few sums to hide the latency of a multiply-add: take two strips at a time.
            if (single_row && strip + 1 < call.strip_end) {
                const TileWeights w{
                    weights, call.strip_bytes, 0, kPrefetchLines<L>, 0, kPrefetchLines<L>, kPrefetchBytes, end, next};
                float* to = out + static_cast<std::ptrdiff_t>(call.row_begin) * call.out_stride;
                tile<L, Part, 1, 4>(call, w, call.row_begin, to);
                ++strip;
                continue;
            }
        }
        for (int panel = 0; panel < kStrip / kPanel; panel += kStripVectors) {
            strip_rows<L, Part>(call,
                                TileWeights{weights, call.strip_bytes, panel, kPrefetchLines<L>, 0, 0, 0, end, next},
                                out + panel * kPanel);
        }
    }
    (void)single_row;
}

template <LayoutId Id>
void linear_either(const LinearCall& call) {
    constexpr Layout L = layout_of(Id);
    if (!L.quantized() || !call.int8) return linear_layout<Id, 0>(call);
    if constexpr (L.quantized()) {
        if (call.input->group == kFineGroup) return linear_layout<Id, kFineGroup>(call);
        if constexpr (L.group == 2 * kFineGroup) return linear_layout<Id, 2 * kFineGroup>(call);
    }
    refuse_coarse_activations(L.name);
}

template <LayoutId Id>
void linear_paired(const LinearCall& call) {
    if constexpr (kIntegerScales) {
        if (call.int8 && call.input->group == kFineGroup) return linear_layout<Id, kFineGroup>(call);
        if (call.int8) return linear_layout<Id, 2 * kFineGroup>(call);
    }
    refuse_integer_scales(layout_of(Id).name);
}

}  // namespace

void linear(const LinearCall& call) {
    unrolled<kNumLayouts>([&](auto number) FREEHOLD_INLINE_LAMBDA {
        constexpr auto kId = static_cast<LayoutId>(static_cast<int>(number));
        if (call.layout != kId) return;
        if constexpr (layout_of(kId).integer_scales()) {
            linear_paired<kId>(call);
        } else {
            linear_either<kId>(call);
        }
    });
}

}  // namespace freehold::FREEHOLD_ISA
