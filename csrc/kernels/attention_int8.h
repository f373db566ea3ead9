// Attention over int8 keys and values, in exact integer sums. See kernels/attention.h.
//
// Keys and values are bytes above 128 (kernels.h). What they are multiplied with is an integer of 14 or 15 bits in two
// planes of signed bytes, so that a sum is 128 * (sum over high bytes) + (sum over low ones) - 128 * (sum of integers).
// Its terms may come in any order. A position's own scale multiplies its score; its value's scale multiplies its weight
// before that becomes an integer, relative to the piece's largest.
#pragma once

#include "kernels.h"
#include "kernels/attention_tile.h"
#include "kernels/integers.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr float kHighestWeight = 16383.0f;

using ByteQuad = Quad<255>;

template <int Queries, int Vectors>
struct IntegerSums {
    LoopSum at[Queries][Vectors];
    FREEHOLD_INLINE IntegerSums() {
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { at[q][v] = loop_sum(i_zero()); });
        });
    }
    FREEHOLD_INLINE void add(int q, const std::int8_t* factors, const I (&lines)[Vectors]) {
        const ByteQuad all = quad<255>(factors);
        unrolled<Vectors>([&](auto v)
                              FREEHOLD_INLINE_LAMBDA { at[q][v] = loop_sum(dot<255>(i_of(at[q][v]), lines[v], all)); });
    }
    FREEHOLD_INLINE void shift() {
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v)
                                  FREEHOLD_INLINE_LAMBDA { at[q][v] = loop_sum(i_shift_left<7>(i_of(at[q][v]))); });
        });
    }
    FREEHOLD_INLINE void add(const IntegerSums& other) {
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                at[q][v] = loop_sum(i_add(i_of(at[q][v]), i_of(other.at[q][v])));
            });
        });
    }
};

// Adds quads [begin, end): `line(quad, v)` is the v-th line of a quad, `factors(q, quad, plane)` a query's factors.
template <int Plane, int Queries, int Vectors, class Line, class Factors>
FREEHOLD_INLINE void add_plane(IntegerSums<Queries, Vectors>& sums, int begin, int end, const Line& line,
                               const Factors& factors, Pump& pump) {
    for (int i = begin; i < end; ++i) {
        pump.fetch<Pump::kWhileReading>();
        I lines[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { lines[v] = i_load(line(i, v)); });
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { sums.add(q, factors(q, i, Plane), lines); });
    }
}

// Likewise, both planes at once.
template <int Queries, int Vectors, class Line, class Factors>
FREEHOLD_INLINE void add_planes(IntegerSums<Queries, Vectors>& high, IntegerSums<Queries, Vectors>& low, int begin,
                                int end, const Line& line, const Factors& factors, Pump& pump) {
    for (int i = begin; i < end; ++i) {
        pump.fetch<Pump::kWhileReading>();
        I lines[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { lines[v] = i_load(line(i, v)); });
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            high.add(q, factors(q, i, 0), lines);
            low.add(q, factors(q, i, 1), lines);
        });
    }
}

// Sums over quads [begin, end) of both planes: at once if they fit in registers, or one after the other.
template <int Queries, int Vectors, class Line, class Factors>
FREEHOLD_INLINE void sum_planes(IntegerSums<Queries, Vectors>& sums, int begin, int end, const Line& line,
                                const Factors& factors, Pump& pump) {
    if constexpr (2 * Queries * Vectors <= kMaxQueryTile * kScoreVectors) {
        IntegerSums<Queries, Vectors> low;
        add_planes(sums, low, begin, end, line, factors, pump);
        sums.shift();
        sums.add(low);
    } else {
        add_plane<0>(sums, begin, end, line, factors, pump);
        sums.shift();
        add_plane<1>(sums, begin, end, line, factors, pump);
    }
}

// Scores of key tiles `first`, first + 1, ...
template <Form form, int Queries, int Vectors>
    requires(form == Form::int8)
FREEHOLD_INLINE void score_tiles(QueryTile<form, Queries>& tile, const PieceView& piece, int first, int head_dim,
                                 Pump& pump) {
    const int num_quads = (head_dim + kQuad - 1) / kQuad;
    const auto line = [&](int i, int v)
                          FREEHOLD_INLINE_LAMBDA { return piece.keys[first + v] + kScaleBytes + i * kLineBytes; };
    const auto factors = [&](int q, int i, int plane) FREEHOLD_INLINE_LAMBDA {
        const auto* bytes = reinterpret_cast<const std::int8_t*>(tile.query[q] + kQueryHeader);
        return bytes + (plane * num_quads + i) * kQuad;
    };
    IntegerSums<Queries, Vectors> sums;
    sum_planes(sums, 0, num_quads, line, factors, pump);
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        float scale;
        std::int32_t bias;
        std::memcpy(&scale, tile.query[q], 4);
        std::memcpy(&bias, tile.query[q] + 4, 4);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            const F scales = f_load(reinterpret_cast<const float*>(piece.keys[first + v]));
            const F scores = f_from_int(i_sub(i_of(sums.at[q][v]), i_set(bias)));
            f_store(tile.weights[q] + (first + v) * kTilePositions, f_mul(scores, f_mul(scales, f_set(scale))));
        });
    });
}

// Weights times their values' scales → integers, by each query's largest.
template <int Queries>
FREEHOLD_INLINE void quantize_weights(QueryTile<Form::int8, Queries>& tile, const PieceView& piece, int first,
                                      const I (&largest)[Queries]) {
    F factor[Queries];
    I total[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        const IntegerScale by = integer_scale(bit_cast<float>(i_highest(largest[q])), kHighestWeight);
        tile.weight_scale[q] = by.scale;
        factor[q] = f_set(by.factor);
        total[q] = i_zero();
    });
    for (int pos = first; pos < piece.high; pos += kTilePositions) {
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            const I integers = rounded(f_load(tile.weights[q] + pos), factor[q]);
            i_store_bytes(tile.planes[q][0] + pos, i_shift_right<7>(integers));
            i_store_bytes(tile.planes[q][1] + pos, i_and(integers, i_set(127)));
            total[q] = i_add(total[q], integers);
        });
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { tile.weight_bias[q] = kByteBias * i_sum(total[q]); });
}

// Scores → weights, as for the other forms; the sums are those of the weights before they become integers.
template <Form form, int Queries>
    requires(form == Form::int8)
FREEHOLD_INLINE void soften(QueryTile<form, Queries>& tile, const PieceView& piece, Joins& joins, Pump& pump) {
    const int first = piece.low / kTilePositions * kTilePositions;
    alignas(64) float maxima[kPanel];
    const F found = find_maxima(tile, piece, pump);
    f_store(maxima, found);
    join_maxima<form>(tile.state, found, joins);
    F maximum[Queries], total[Queries];
    I largest[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        maximum[q] = f_set(maxima[q]);
        total[q] = f_zero();
        largest[q] = i_zero();
    });
    for (int pos = first; pos < piece.high; pos += kTilePositions) {
        pump.fetch<Pump::kWhileSoftening>();
        const F scales = f_load(reinterpret_cast<const float*>(piece.values[pos / kTilePositions]));
        const bool whole = all_see(piece, pos);
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            const F weight = f_softmax_exp<form>(f_sub(f_load(tile.weights[q] + pos), maximum[q]));
            total[q] = f_add(total[q], weight);
            F scaled = f_mul(weight, scales);
            if (!whole) scaled = f_select(seen_lanes(tile, q, pos), scaled, f_zero());  // 0 * what was never written
            f_store(tile.weights[q] + pos, scaled);
            largest[q] = i_max(largest[q], magnitude_bits(scaled));
        });
    }
    join_sums(tile.state, f_sum_each(total), joins);
    quantize_weights(tile, piece, first, largest);
}

template <Form form, int Queries, int Vectors>
    requires(form == Form::int8)
FREEHOLD_INLINE void add_values(const QueryTile<form, Queries>& tile, const PieceView& piece, const Joins& joins,
                                int element, int stride, Pump& pump) {
    constexpr int kTileQuads = kTilePositions / kQuad;
    const auto line = [&](int i, int v) FREEHOLD_INLINE_LAMBDA {
        const std::uint8_t* quads = piece.values[i / kTileQuads] + kScaleBytes;
        return quads + (i % kTileQuads * stride + element + v * kPanel) * kQuad;
    };
    const auto factors = [&](int q, int i, int plane)
                             FREEHOLD_INLINE_LAMBDA { return tile.planes[q][plane] + i * kQuad; };
    const int begin = piece.low / kQuad, end = (piece.high + kQuad - 1) / kQuad;
    IntegerSums<Queries, Vectors> sums;
    sum_planes(sums, begin, end, line, factors, pump);
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        F values[Vectors];
        const I bias = i_set(tile.weight_bias[q]);
        const F scale = f_set(tile.weight_scale[q]);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            values[v] = f_mul(f_from_int(i_sub(i_of(sums.at[q][v]), bias)), scale);
        });
        join_values<Vectors>(tile.state[q] + kPartialHeader + element, joins.keep[q], joins.join[q], values);
    });
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
