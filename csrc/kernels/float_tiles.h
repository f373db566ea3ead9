// Tiles of linear layers with float activations: weights are dequantized in registers, then one multiply-add per input,
// inputs in the order in which the layout stores them.
#pragma once

#include "kernels/tile.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Nibbles become floats straight from their line.
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
    sums.add_product(weights, x, stride);
    if constexpr (kNibbles<L>) {
        line_weights<L, 8 * Byte + 4>(line, scales, weights);
        sums.add_product(weights, x + kCellInputs / 2, stride);
    }
}

template <const Layout& L, int Rows, int Vectors>
FREEHOLD_INLINE void float_line(Sums<Rows, Vectors>& sums, const TileWeights& w, std::size_t at,
                                const CellScales<L, Vectors>& scales, const float* x, int stride) {
    I line[Vectors];
    unrolled<Vectors>(
        [&](auto v) FREEHOLD_INLINE_LAMBDA { line[v] = i_load(w.cell(v, at) + w.panel_of(v) * L.panel_bytes()); });
    unrolled<kQuad>([&](auto byte)
                        FREEHOLD_INLINE_LAMBDA { float_line_byte<L, byte>(sums, line, scales, x + byte, stride); });
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
            const CellScales<L, Vectors> scales(w, at, 0);
            for (int line = 0; line < L.low_bits; ++line) {
                float_line<L>(sums, w, at.cell + line * kLineBytes, scales, x + line * kQuad, stride);
            }
        }
    }
    sums.store(call, out);
}

// Float tiles of layouts whose values stand neither in nibbles nor in bytes share their code: a function of the layout
// unpacks a cell, then it is bytes with a scale and a minimum for each 16 inputs.
template <int Vectors>
struct UnpackedCell {
    static constexpr int kGroups = 2;
    F scale[kGroups][Vectors];
    F minimum[kGroups][Vectors];
    alignas(kLineBytes) std::uint8_t lines[Vectors][kCellQuads * kLineBytes];
};

template <int Vectors>
struct CellUnpacker {
    void (*unpack)(const TileWeights& w, std::size_t block, int number, UnpackedCell<Vectors>& cell);
    int offset;
    int num_cells;  // of a block
    std::size_t block_bytes;
};

template <const Layout& L, int Vectors>
void unpack_cell(const TileWeights& w, std::size_t block, int number, UnpackedCell<Vectors>& cell) {
    const CellAt at = cell_at<L>(block, number);
    w.prefetch(at);
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        const std::uint8_t* panel = w.cell(v, at.cell) + w.panel_of(v) * L.panel_bytes();
        unrolled<kCellQuads>([&](auto quad) FREEHOLD_INLINE_LAMBDA {
            i_store(cell.lines[v] + quad * kLineBytes, quad_weights<L, quad>(panel));
        });
        unrolled<UnpackedCell<Vectors>::kGroups>([&](auto half) FREEHOLD_INLINE_LAMBDA {
            const int group = half * L.cell_groups() / UnpackedCell<Vectors>::kGroups;
            const GroupScales found = group_scales<L>(w.cell(v, 0), at, group, w.panel_of(v));
            cell.scale[half][v] = found.scale;
            cell.minimum[half][v] = found.minimum;
        });
    });
}

// All four inputs of a quad. Without a minimum, adding zero changes no bit of a product that isn't zero.
template <int Rows, int Vectors>
FREEHOLD_INLINE void add_unpacked_quad(Sums<Rows, Vectors>& sums, const UnpackedCell<Vectors>& cell, int number,
                                       I offset, const float* x, int stride) {
    const int group = number * UnpackedCell<Vectors>::kGroups / kCellQuads;
    I line[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { line[v] = i_load(cell.lines[v] + number * kLineBytes); });
    unrolled<kQuad>([&](auto byte) FREEHOLD_INLINE_LAMBDA {
        F weights[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            const I stored = i_and(i_moved_right<8 * byte>(line[v]), i_set(255));
            weights[v] = f_fma(f_from_int(i_sub(stored, offset)), cell.scale[group][v], cell.minimum[group][v]);
        });
        sums.add_product(weights, x + byte, stride);
    });
}

template <int Rows, int Vectors>
__attribute__((noinline)) void unpacking_tile(const LinearCall& call, const TileWeights& w, int row, float* out,
                                              const CellUnpacker<Vectors>& from) {
    Sums<Rows, Vectors> sums;
    UnpackedCell<Vectors> cell;
    const int stride = call.input->stride;
    const float* x = call.input->x + static_cast<std::ptrdiff_t>(row) * stride;
    const I offset = i_set(from.offset);
    for (std::size_t block = 0; block < w.strip_bytes; block += from.block_bytes) {
        for (int number = 0; number < from.num_cells; ++number, x += kCellInputs) {
            from.unpack(w, block, number, cell);
            for (int quad = 0; quad < kCellQuads; ++quad) {
                add_unpacked_quad(sums, cell, quad, offset, x + quad * kQuad, stride);
            }
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

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
