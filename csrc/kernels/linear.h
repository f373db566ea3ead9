// Linear layers over packed weights. One template serves one row and many: a tile holds `Rows` rows and `Vectors`
// panels of outputs in registers, and what it adds to an output, and in which order, is the same for every tile shape.
//
// float activations: weights are dequantized in registers, then one multiply-add per input; inputs in the order in
//     which the layout stores them.
// int8 activations: per group, ascending, one multiply-add of the minimum (if any); then for each of its parts that has
//     one activation scale an exact integer dot product and one multiply-add of the scales.
#pragma once

#include "kernels.h"
#include "kernels/cells.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kPrefetchBytes = 4096;

// The part of a matrix that a tile reads: panels `panel`, `panel` + 1, ... from `strip` on.
struct TileWeights {
    const std::uint8_t* strip;
    std::size_t strip_bytes;
    int panel;
    int prefetch_lines;  // per cell
    std::ptrdiff_t prefetch_distance;
    const std::uint8_t* end;   // of the call's strips
    const std::uint8_t* next;  // what is read after them

    FREEHOLD_INLINE const std::uint8_t* cell(int vector, std::size_t at) const {
        return strip + static_cast<std::size_t>((first_panel() + vector) / 2) * strip_bytes + at;
    }
    // A constant where tiles cover whole strips.
    FREEHOLD_INLINE int first_panel() const { return kStripVectors * kPanel == kStrip ? 0 : panel; }
    FREEHOLD_INLINE int panel_of(int vector) const { return (first_panel() + vector) % 2; }
    // As many lines each time as make up the block (its head included) over its cells.
    FREEHOLD_INLINE void prefetch(const CellAt& at) const {
        const std::uint8_t* p = strip + at.block + at.number * prefetch_lines * kLineBytes + prefetch_distance;
        if (p >= end) p = next + (p - end);
        for (int i = 0; i < prefetch_lines; ++i) __builtin_prefetch(p + i * kLineBytes, 0, 2);
    }
};

template <const Layout& L>
constexpr int kPrefetchLines = (L.block_bytes() / kLineBytes + L.num_cells() - 1) / L.num_cells();

// Scales of one group, for all vectors.
template <const Layout& L, int Vectors>
struct CellScales {
    F scale[Vectors];
    F minimum[Vectors];

    FREEHOLD_INLINE CellScales(const TileWeights& w, const CellAt& at, int group) {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            const GroupScales found = group_scales<L>(w.cell(v, 0), at, group, w.panel_of(v));
            scale[v] = found.scale;
            minimum[v] = found.minimum;
        });
    }
    FREEHOLD_INLINE F weight(int v, F value) const {
        if constexpr (L.minimum) {
            return f_fma(value, scale[v], minimum[v]);
        } else {
            return f_mul(value, scale[v]);
        }
    }
};

template <int Rows, int Vectors>
struct Sums {
    F at[Rows][Vectors];

    FREEHOLD_INLINE Sums() {
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { at[r][v] = f_zero(); });
        });
    }
    FREEHOLD_INLINE void add_product(const F (&weights)[Vectors], const float* x, int stride) {
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const F activation = f_set(x[r * stride]);
            unrolled<Vectors>([&](auto v)
                                  FREEHOLD_INLINE_LAMBDA { at[r][v] = f_fma(weights[v], activation, at[r][v]); });
        });
    }
    FREEHOLD_INLINE void store(const LinearCall& call, float* out) const {
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                float* p = out + static_cast<std::ptrdiff_t>(r) * call.out_stride + v * kPanel;
                f_store(p, call.add ? f_add(f_load(p), at[r][v]) : at[r][v]);
            });
        });
    }
};

// Nibbles become floats straight from their line; other values take the way over bytes.
template <const Layout& L>
constexpr bool kNibbles = L.low_bits == 4 && L.high_bits == 0 && !L.table;

// Weights of one input: the value at bit `Shift` of every lane of a line.
template <const Layout& L, int Shift, int Vectors>
FREEHOLD_INLINE void line_weights(const I (&line)[Vectors], const CellScales<L, Vectors>& scales,
                                  F (&weights)[Vectors]) {
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        if constexpr (kNibbles<L>) {
            weights[v] = scales.weight(v, f_nibble<Shift>(line[v], nibbles<L.offset>()));
        } else {
            const I stored = i_and(i_shift_right<Shift>(line[v]), i_set(255));
            weights[v] = scales.weight(v, f_from_int(i_sub(stored, i_set(L.offset))));
        }
    });
}

template <const Layout& L, int Byte, int Rows, int Vectors>
FREEHOLD_INLINE void float_line_byte(Sums<Rows, Vectors>& sums, const I (&line)[Vectors],
                                     const CellScales<L, Vectors>& scales, const float* x, int stride) {
    F weights[Vectors];
    line_weights<L, 8 * Byte>(line, scales, weights);
    sums.add_product(weights, x + Byte, stride);
    if constexpr (kNibbles<L>) {
        line_weights<L, 8 * Byte + 4>(line, scales, weights);
        sums.add_product(weights, x + Byte + kCellInputs / 2, stride);
    }
}

// The lines of a cell that hold one value a byte: the cell's own, or else unpacked ones.
template <const Layout& L, int Vectors>
struct ByteLines {
    static constexpr bool kAsStored = kNibbles<L> || L.low_bits == 8;
    const std::uint8_t* at[Vectors];
    alignas(kLineBytes) std::uint8_t unpacked[kAsStored ? 1 : Vectors][kAsStored ? 1 : kCellQuads * kLineBytes];

    FREEHOLD_INLINE ByteLines(const TileWeights& w, std::size_t cell) {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            at[v] = w.cell(v, cell) + w.panel_of(v) * L.panel_bytes();
            if constexpr (!kAsStored) {
                unrolled<kCellQuads>([&](auto number) FREEHOLD_INLINE_LAMBDA {
                    i_store(unpacked[v] + number * kLineBytes, quad_weights<L, number>(at[v]));
                });
                at[v] = unpacked[v];
            }
        });
    }
};

template <const Layout& L, int Rows, int Vectors>
FREEHOLD_INLINE void float_cell(Sums<Rows, Vectors>& sums, const TileWeights& w, const CellAt& at, const float* x,
                                int stride) {
    constexpr int kLines = (kNibbles<L> ? kCellQuads / 2 : kCellQuads) / L.cell_groups();
    const ByteLines<L, Vectors> lines(w, at.cell);
    unrolled<L.cell_groups()>([&](auto group) FREEHOLD_INLINE_LAMBDA {
        const CellScales<L, Vectors> scales(w, at, group);
        for (int number = group * kLines; number < (group + 1) * kLines; ++number) {
            I line[Vectors];
            unrolled<Vectors>([&](auto v)
                                  FREEHOLD_INLINE_LAMBDA { line[v] = i_load(lines.at[v] + number * kLineBytes); });
            const float* first = x + number * kQuad;
            float_line_byte<L, 0>(sums, line, scales, first, stride);
            float_line_byte<L, 1>(sums, line, scales, first, stride);
            float_line_byte<L, 2>(sums, line, scales, first, stride);
            float_line_byte<L, 3>(sums, line, scales, first, stride);
        }
    });
}

template <const Layout& L, int Rows, int Vectors>
void float_tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    Sums<Rows, Vectors> sums;
    const int stride = call.input->stride;
    const float* x = call.input->x + static_cast<std::ptrdiff_t>(row) * stride;
    for (std::size_t block = 0; block < w.strip_bytes; block += L.block_bytes()) {
        for (int number = 0; number < L.num_cells(); ++number, x += kCellInputs) {
            const CellAt at = cell_at<L>(block, number);
            w.prefetch(at);
            float_cell<L>(sums, w, at, x, stride);
        }
    }
    sums.store(call, out);
}

template <const Layout& L, int Rows, int Vectors>
void plain_tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    Sums<Rows, Vectors> sums;
    const int stride = call.input->stride;
    const float* x = call.input->x + static_cast<std::ptrdiff_t>(row) * stride;
    for (std::size_t block = 0; block < w.strip_bytes; block += L.block_bytes(), ++x) {
        w.prefetch(cell_at<L>(block, 0));
        F weights[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            const std::uint8_t* p = w.cell(v, block) + w.panel_of(v) * L.panel_bytes();
            weights[v] = L.low_bits == 16 ? f_bf16(p) : f_load(reinterpret_cast<const float*>(p));
        });
        sums.add_product(weights, x, stride);
    }
    sums.store(call, out);
}

// One row's quantized activations, and how far the next row's are.
struct Int8Rows {
    const std::int8_t* q;
    const float* scale;
    const std::int32_t* sums;
    const float* minimum_sums;
    int stride, scale_stride, minimum_stride;
};

template <const Layout& L, int Part>
FREEHOLD_INLINE Int8Rows int8_rows(const Activations& a, int row) {
    const std::ptrdiff_t scales = a.stride / Part;
    const std::ptrdiff_t groups = a.stride / L.group;
    return {a.q + static_cast<std::ptrdiff_t>(row) * a.stride,
            a.scale + row * scales,
            a.sums + row * scales,
            (L.group == 32 ? a.scaled_sums32 : a.scaled_sums) + row * groups,
            a.stride,
            static_cast<int>(scales),
            static_cast<int>(groups)};
}

constexpr int log2_of(int power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// Adds a part of a cell, with one activation scale: exact integer dot products, then one multiply-add of both scales.
template <const Layout& L, int PartInputs, int Part, int Rows, int Vectors>
FREEHOLD_INLINE void int8_part(Sums<Rows, Vectors>& sums, const TileWeights& w, std::size_t cell,
                               const CellScales<L, Vectors>& scales, const Int8Rows& x, int part) {
    constexpr int kQuads = PartInputs / kQuad;
    constexpr int kHighest = L.highest();
    I dots[Rows][Vectors];
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        I start = i_zero();
        if constexpr (L.offset != 0) {
            const I sum = i_set(x.sums[r * x.scale_stride + part]);
            start = i_sub(start, i_shift_left<log2_of(L.offset)>(sum));
        }
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
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        __builtin_prefetch(out + static_cast<std::ptrdiff_t>(r) * call.out_stride, 1, 3);
    });
    const Int8Rows x = int8_rows<L, PartInputs>(*call.input, row);
    int cell_number = 0;
    for (std::size_t block = 0; block < w.strip_bytes; block += L.block_bytes()) {
        for (int number = 0; number < L.num_cells(); ++number, ++cell_number) {
            const CellAt at = cell_at<L>(block, number);
            w.prefetch(at);
            int8_cell<L, PartInputs>(sums, w, at, x, cell_number);
        }
    }
    sums.store(call, out);
}

// `Part` is the inputs that share an int8 activation scale; 0 for float activations.
template <const Layout& L, int Part, int Rows, int Vectors>
FREEHOLD_INLINE void tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    if constexpr (!L.quantized()) {
        plain_tile<L, Rows, Vectors>(call, w, row, out);
    } else if constexpr (Part != 0) {
        int8_tile<L, Part, Rows, Vectors>(call, w, row, out);
    } else {
        float_tile<L, Rows, Vectors>(call, w, row, out);
    }
}

// Rows of the highest tile for `rows` rows. Few heights, since each is a kernel of its own.
template <bool Int8>
constexpr int tile_height(int rows) {
    constexpr int kMiddle = Int8 ? kMaxTileRows * 2 / 3 : kMaxTileRows / 2;
    constexpr int kHeights[] = {kMaxTileRows, kMiddle, Int8 ? kMaxTileRows / 3 : 1};
    for (const int height : kHeights) {
        if (height > 0 && rows >= height) return height;
    }
    return 1;
}

// One tile of `rows` rows, a height that there is.
template <const Layout& L, int Part, int Rows>
FREEHOLD_INLINE void tile_of(int rows, const LinearCall& call, const TileWeights& w, int row, float* out) {
    if (rows == Rows) return tile<L, Part, Rows, kStripVectors>(call, w, row, out);
    if constexpr (Rows > 1) tile_of<L, Part, tile_height<Part != 0>(Rows - 1)>(rows, call, w, row, out);
}

// All rows of the call over one strip.
template <const Layout& L, int Part>
void strip_rows(const LinearCall& call, TileWeights w, float* out) {
    const bool single_tile = tile_height<Part != 0>(call.row_end - call.row_begin) == call.row_end - call.row_begin;
    w.prefetch_distance = single_tile ? kPrefetchBytes : static_cast<std::ptrdiff_t>(w.strip_bytes);
    w.prefetch_lines = w.panel == 0 ? kPrefetchLines<L> : 0;
    for (int row = call.row_begin; row < call.row_end;) {
        const int rows = tile_height<Part != 0>(call.row_end - row);
        float* to = out + static_cast<std::ptrdiff_t>(row) * call.out_stride;
        tile_of<L, Part, kMaxTileRows>(rows, call, w, row, to);
        row += rows;
        w.prefetch_lines = 0;  // the first tile has fetched what the next strip needs
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
                const TileWeights w{weights, call.strip_bytes, 0, kPrefetchLines<L>, kPrefetchBytes, end, next};
                float* to = out + static_cast<std::ptrdiff_t>(call.row_begin) * call.out_stride;
                tile<L, Part, 1, 4>(call, w, call.row_begin, to);
                ++strip;
                continue;
            }
        }
        for (int panel = 0; panel < kStrip / kPanel; panel += kStripVectors) {
            strip_rows<L, Part>(call, TileWeights{weights, call.strip_bytes, panel, 0, 0, end, next},
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

}  // namespace

void linear(const LinearCall& call) {
    unrolled<kNumLayouts>([&](auto number) FREEHOLD_INLINE_LAMBDA {
        constexpr auto kId = static_cast<LayoutId>(static_cast<int>(number));
        if (call.layout == kId) linear_either<kId>(call);
    });
}

}  // namespace freehold::FREEHOLD_ISA
