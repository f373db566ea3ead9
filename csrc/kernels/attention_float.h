// Attention over float32 and bf16 keys and values. See kernels/attention.h.
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
    // Pairs of bf16, the same pair of `factors` in every lane.
    FREEHOLD_INLINE void add_pair(int q, const std::uint16_t* factors, const I (&lines)[Vectors]) {
        int pair;
        std::memcpy(&pair, factors, sizeof pair);
        const I all = i_set(pair);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { at[q][v] = f_dot_bf16(at[q][v], lines[v], all); });
    }
};

template <int Vectors>
FREEHOLD_INLINE void widen(const I (&lines)[Vectors], F (&even)[Vectors], F (&odd)[Vectors]) {
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        even[v] = f_bf16_even(lines[v]);
        odd[v] = f_bf16_odd(lines[v]);
    });
}

// Scores of key tiles `first`, first + 1, ...
template <Form form, int Queries, int Vectors>
    requires(form != Form::int8)
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
            I keys[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { keys[v] = i_load(piece.keys[first + v] + line); });
            if constexpr (form == Form::bf16_dot) {
                unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { sums.add_pair(q, tile.query[q] + e, keys); });
            } else {
                F even[Vectors], odd[Vectors];
                widen(keys, even, odd);
                unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
                    sums.add(q, tile.query[q][e], even);
                    if (e + 1 < head_dim) sums.add(q, tile.query[q][e + 1], odd);
                });
            }
        }
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            f_store(tile.weights[q] + (first + v) * kTilePositions, sums.at[q][v]);
        });
    });
}

FREEHOLD_INLINE float total_of(F lanes) { return f_sum(lanes); }

template <Form>
struct WeightSum {
    F sum = f_zero();
};
template <>
struct WeightSum<Form::bf16_dot> {
    HalfSum sum;
};

// Scores → weights, exp(score - maximum), 0 where a query sees nothing; each query's maximum, and the sum of its
// weights as they are used.
template <Form form, int Queries>
    requires(form != Form::int8)
FREEHOLD_INLINE void soften(QueryTile<form, Queries>& tile, const PieceView& piece, float (&maxima)[Queries],
                            float (&sums)[Queries], Pump& pump) {
    const int first = piece.low / kTilePositions * kTilePositions;
    F maximum[Queries];
    WeightSum<form> total[Queries];
    find_maxima(tile, piece, maxima, pump);
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { maximum[q] = f_set(maxima[q]); });
    for (int pos = first; pos < piece.high; pos += kTilePositions) {
        pump.fetch<Pump::kWhileSoftening>();
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            const F weight = f_softmax_exp<form>(f_sub(f_load(tile.weights[q] + pos), maximum[q]));
            if constexpr (form == Form::bf16_dot) {
                add_halves(total[q].sum, tile.halves(q) + pos, weight);
            } else {
                f_store(tile.weights[q] + pos, weight);
                total[q].sum = f_add(total[q].sum, weight);
            }
        });
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { sums[q] = total_of(total[q].sum); });
}

// Values of two positions of a tile, in vectors of 16 elements from the one at `at` on.
template <Form form, int Vectors>
struct ValuePair {
    I lines[Vectors];               // bf16: both positions in each lane
    F even[Vectors], odd[Vectors];  // otherwise

    FREEHOLD_INLINE ValuePair(const std::uint8_t* at, int stride) {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            if constexpr (form == Form::f32) {
                const auto* floats = reinterpret_cast<const float*>(at) + v * kPanel;
                even[v] = f_load(floats);
                odd[v] = f_load(floats + stride);
            } else {
                lines[v] = i_load(at + v * kLineBytes);
            }
        });
        if constexpr (form == Form::bf16) widen(lines, even, odd);
    }
    // Adds both to query q's sums.
    template <int Queries>
    FREEHOLD_INLINE void add_to(Accumulators<Queries, Vectors>& sums, const QueryTile<form, Queries>& tile, int q,
                                int pos) const {
        if constexpr (form == Form::bf16_dot) {
            sums.add_pair(q, tile.halves(q) + pos, lines);
        } else {
            sums.add(q, tile.weights[q][pos], even);
            sums.add(q, tile.weights[q][pos + 1], odd);
        }
    }
    // Adds what query q sees of them: the rest may never have been written.
    template <int Queries>
    FREEHOLD_INLINE void add_seen(Accumulators<Queries, Vectors>& sums, const QueryTile<form, Queries>& tile, int q,
                                  int pos) const {
        const bool sees_even = pos >= tile.low[q] && pos < tile.high[q];
        const bool sees_odd = pos + 1 >= tile.low[q] && pos + 1 < tile.high[q];
        if constexpr (form == Form::bf16_dot) {
            const I seen = i_set(static_cast<int>((sees_even ? 0xffffu : 0u) | (sees_odd ? 0xffff0000u : 0u)));
            I rest[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { rest[v] = i_and(lines[v], seen); });
            sums.add_pair(q, tile.halves(q) + pos, rest);
        } else {
            if (sees_even) sums.add(q, tile.weights[q][pos], even);
            if (sees_odd) sums.add(q, tile.weights[q][pos + 1], odd);
        }
    }
};

template <Form form, int Queries, int Vectors>
    requires(form != Form::int8)
FREEHOLD_INLINE void add_values(const QueryTile<form, Queries>& tile, const PieceView& piece,
                                const Joins<Queries>& joins, int element, int stride, Pump& pump) {
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
