// Attention over float32 and bf16 keys and values in float32. See kernels/attention.h.
#pragma once

#include "kernels.h"
#include "kernels/attention_tile.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {
template <int Queries, int Vectors>
struct Accumulators {
    F at[Queries][Vectors];
    FREEHOLD_INLINE Accumulators() {
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { at[q][v] = f_zero(); });
        });
    }
    FREEHOLD_INLINE void add(int q, float factor, const F (&vectors)[Vectors]) {
        const F all = f_set(factor);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { at[q][v] = f_fma(all, vectors[v], at[q][v]); });
    }
};

// Scores of key tiles `first`, first + 1, ...
template <Form form, int Queries, int Vectors>
    requires(form == Form::f32 || form == Form::bf16)
FREEHOLD_INLINE void score_tiles(QueryTile<form, Queries>& tile, const PieceView& piece, int first, int head_dim,
                                 Pump& pump) {
    Accumulators<Queries, Vectors> sums;
    if constexpr (form == Form::f32) {
        for (int e = 0; e < head_dim; ++e) {
            pump.fetch<Pump::kWhileReading>();
            F keys[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                keys[v] = f_load(reinterpret_cast<const float*>(piece.keys[first + v]) + e * kTilePositions);
            });
            unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { sums.add(q, tile.query[q][e], keys); });
        }
    } else {
        std::ptrdiff_t line = 0;
        for (int e = 0; e < head_dim; e += 2, line += kLineBytes) {
            pump.fetch<Pump::kWhileReading>();
            F even[Vectors], odd[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                const I keys = i_load(piece.keys[first + v] + line);
                even[v] = f_bf16_even(keys);
                odd[v] = f_bf16_odd(keys);
            });
            unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
                sums.add(q, tile.query[q][e], even);
                if (e + 1 < head_dim) sums.add(q, tile.query[q][e + 1], odd);
            });
        }
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            f_store(tile.weights[q] + (first + v) * kTilePositions, sums.at[q][v]);
        });
    });
}

// Scores → weights, exp(score - maximum), 0 where a query sees nothing. Joins the maxima and the sums of the weights.
template <Form form, int Queries>
    requires(form == Form::f32 || form == Form::bf16)
FREEHOLD_INLINE void soften(QueryTile<form, Queries>& tile, const PieceView& piece, Joins& joins, Pump& pump) {
    const int first = piece.low / kTilePositions * kTilePositions;
    alignas(64) float maxima[kPanel];
    const F found = find_maxima(tile, piece, pump);
    f_store(maxima, found);
    join_maxima<form>(tile.state, found, joins);
    F maximum[Queries], total[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        maximum[q] = f_set(maxima[q]);
        total[q] = f_zero();
    });
    for (int pos = first; pos < piece.high; pos += kTilePositions) {
        pump.fetch<Pump::kWhileSoftening>();
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            const F weight = f_softmax_exp<form>(f_sub(f_load(tile.weights[q] + pos), maximum[q]));
            f_store(tile.weights[q] + pos, weight);
            total[q] = f_add(total[q], weight);
        });
    }
    join_sums(tile.state, f_sum_each(total), joins);
}

// Values of two positions of a tile, in vectors of 16 elements from the one at `at` on.
template <Form form, int Vectors>
struct ValuePair {
    F even[Vectors], odd[Vectors];

    FREEHOLD_INLINE ValuePair(const std::uint8_t* at, int stride) {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            if constexpr (form == Form::f32) {
                const auto* floats = reinterpret_cast<const float*>(at) + v * kPanel;
                even[v] = f_load(floats);
                odd[v] = f_load(floats + stride);
            } else {
                const I line = i_load(at + v * kLineBytes);
                even[v] = f_bf16_even(line);
                odd[v] = f_bf16_odd(line);
            }
        });
    }
    // Adds both to query q's sums.
    template <int Queries>
    FREEHOLD_INLINE void add_to(Accumulators<Queries, Vectors>& sums, const QueryTile<form, Queries>& tile, int q,
                                int pos) const {
        sums.add(q, tile.weights[q][pos], even);
        sums.add(q, tile.weights[q][pos + 1], odd);
    }
    // Adds what query q sees of them: the rest may never have been written.
    template <int Queries>
    FREEHOLD_INLINE void add_seen(Accumulators<Queries, Vectors>& sums, const QueryTile<form, Queries>& tile, int q,
                                  int pos) const {
        const bool sees_even = pos >= tile.low[q] && pos < tile.high[q];
        const bool sees_odd = pos + 1 >= tile.low[q] && pos + 1 < tile.high[q];
        if (sees_even) sums.add(q, tile.weights[q][pos], even);
        if (sees_odd) sums.add(q, tile.weights[q][pos + 1], odd);
    }
};

template <Form form, int Queries, int Vectors>
    requires(form == Form::f32 || form == Form::bf16)
FREEHOLD_INLINE void add_values(const QueryTile<form, Queries>& tile, const PieceView& piece, const Joins& joins,
                                int element, int stride, Pump& pump) {
    // Elements of float32 stand one position after the other, others in pairs of positions.
    constexpr int kElementBytes = 4;
    const std::ptrdiff_t pair_bytes = stride * kElementBytes * (form == Form::f32 ? 2 : 1);
    Accumulators<Queries, Vectors> sums;
    for (int pos = piece.low & ~1; pos < piece.high;) {
        const std::uint8_t* at = piece.values[pos / kTilePositions] + pos % kTilePositions / 2 * pair_bytes +
                                 element * std::ptrdiff_t{kElementBytes};
        const int tile_end = pos / kTilePositions * kTilePositions + kTilePositions;
        const int end = tile_end < piece.high ? tile_end : piece.high;
        for (; pos < end; pos += 2, at += pair_bytes) {
            pump.fetch<Pump::kWhileReading>();
            const ValuePair<form, Vectors> values(at, stride);
            if (pos >= piece.common_low && pos + 1 < piece.common_high) {
                unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { values.add_to(sums, tile, q, pos); });
            } else {
                unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { values.add_seen(sums, tile, q, pos); });
            }
        }
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        join_values<Vectors>(tile.state[q] + kPartialHeader + element, joins.keep[q], joins.join[q], sums.at[q]);
    });
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
