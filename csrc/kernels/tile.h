// What a tile of a linear layer reads and adds up: its panels of weights, their scales, and its sums.
#pragma once

#include "kernels.h"
#include "kernels/cells.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// The part of a matrix that a tile reads: panels `panel`, `panel` + 1, ... from `strip` on.
struct TileWeights {
    const std::uint8_t* strip;
    std::size_t strip_bytes;
    int panel;
    int cell_lines;      // as many each time as make up the block (its head included) over its cells
    int prefetch_begin;  // which of them a tile prefetches
    int prefetch_end;
    std::ptrdiff_t prefetch_distance;
    const std::uint8_t* end;   // of the call's strips
    const std::uint8_t* next;  // what is read after them

    FREEHOLD_INLINE const std::uint8_t* cell(int vector, std::size_t at) const {
        return strip + static_cast<std::size_t>((first_panel() + vector) / 2) * strip_bytes + at;
    }
    // A constant where tiles cover whole strips.
    FREEHOLD_INLINE int first_panel() const { return kStripVectors * kPanel == kStrip ? 0 : panel; }
    FREEHOLD_INLINE int panel_of(int vector) const { return (first_panel() + vector) % 2; }
    // Of a cell, in so many parts.
    template <int Part = 0, int Parts = 1>
    FREEHOLD_INLINE void prefetch(const CellAt& at) const {
        const int share = prefetch_end - prefetch_begin;
        const int begin = prefetch_begin + share * Part / Parts, end = prefetch_begin + share * (Part + 1) / Parts;
        prefetch(at.block + static_cast<std::size_t>((at.number * cell_lines + begin) * kLineBytes), end - begin);
    }
    // The units, which stand before the cells.
    FREEHOLD_INLINE void prefetch_units() const { prefetch(0, prefetch_begin == 0 && prefetch_end != 0 ? 1 : 0); }
    FREEHOLD_INLINE void prefetch(std::size_t at, int lines) const {
        const std::uint8_t* p = strip + at + prefetch_distance;
        if (p >= end) p = next + (p - end);
        for (int i = 0; i < lines; ++i) __builtin_prefetch(p + i * kLineBytes, 0, 2);
    }
};

// Tiles of fewer rows take too little time.
template <int Rows>
FREEHOLD_INLINE void fetch_background(const LinearCall& call) {
    if constexpr (Rows >= 4) {
        if (call.background != nullptr) call.background->fetch();
    }
}

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
    // Lines that `store` will write.
    FREEHOLD_INLINE static void prefetch(const LinearCall& call, float* out) {
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                __builtin_prefetch(out + static_cast<std::ptrdiff_t>(r) * call.out_stride + v * kPanel, 1, 3);
            });
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

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
