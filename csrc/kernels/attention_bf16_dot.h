// Attention over bf16 keys and values with queries and weights in bf16 too. See kernels/attention.h.
//
// A tile's scores become weights beside the products of the next tile's queries with the keys, a vector with each pair
// of the head's elements: most of that work is for units that are idle then.
#pragma once

#include <cstring>

#include "kernels.h"
#include "kernels/attention_tile.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

template <int Queries>
using PairTile = QueryTile<Form::bf16_dot, Queries>;

// The scores of a tile on their way to weights, exp(score - maximum).
class Softening {
  public:
    FREEHOLD_INLINE Softening() = default;
    template <int Queries>
    FREEHOLD_INLINE explicit Softening(PairTile<Queries>& tile)
        : scores_(tile.scores[0]), maxima_(tile.maxima), weights_(tile.weights[0]), end_(Queries * kTiles) {}
    // The next vector, if one is left.
    FREEHOLD_INLINE void step() {
        if (next_ == end_) return;
        const F maximum = f_set(maxima_[next_ / kTiles]);
        const F weight = f_exp2_for_bf16(f_sub(f_load(scores_ + next_ * kPanel), maximum));
        f_store_halves(weights_ + next_ * kPanel, weight);
        ++next_;
    }
    // All that are left; meanwhile memory is asked for `Lines` lines a vector.
    template <int Lines>
    FREEHOLD_INLINE void finish(Pump& pump) {
        while (next_ != end_) {
            pump.fetch<Lines>();
            step();
        }
    }

  private:
    const float* scores_ = nullptr;
    const float* maxima_ = nullptr;
    std::uint16_t* weights_ = nullptr;
    int next_ = 0, end_ = 0;
};

// sums[q] += the pair of each query, the same in every lane, times `lines`.
template <int Queries, int Vectors, class PairOf>
FREEHOLD_INLINE void add_pairs(F (&sums)[Queries][Vectors], const I (&lines)[Vectors], const PairOf& pair_of) {
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        int pair;
        std::memcpy(&pair, pair_of(q), sizeof pair);
        const I all = i_set(pair);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_dot_bf16(sums[q][v], lines[v], all); });
    });
}

template <int Queries, int Vectors>
FREEHOLD_INLINE void clear(F (&sums)[Queries][Vectors]) {
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_zero(); });
    });
}

// Scores of `Vectors` key tiles from `first` on, and how the piece's maxima join the states. Meanwhile the scores of an
// earlier tile become weights.
template <int Queries, int Vectors>
FREEHOLD_INLINE void score_tiles(PairTile<Queries>& tile, const PieceView& piece, int first, int head_dim, Joins& joins,
                                 Softening& earlier, Pump& pump) {
    F sums[Queries][Vectors];
    clear(sums);
    const std::uint8_t* at[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { at[v] = piece.keys[first + v]; });
    const std::uint16_t* query[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { query[q] = tile.query[q]; });
    std::ptrdiff_t line = 0;
    for (int e = 0; e < head_dim; e += 2, line += kLineBytes) {
        pump.fetch<Pump::kWhileReading>();
        I keys[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { keys[v] = i_load(at[v] + line); });
        add_pairs(sums, keys, [&](int q) FREEHOLD_INLINE_LAMBDA { return query[q] + e; });
        earlier.step();
    }
    const bool whole = all_see(piece, first * kTilePositions) && all_see(piece, (first + Vectors - 1) * kTilePositions);
    F highest[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        highest[q] = f_set(-kInfinity);
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            const int pos = (first + v) * kTilePositions;
            if (!whole) sums[q][v] = f_select(seen_lanes(tile, q, pos), sums[q][v], f_set(-kInfinity));
            f_store(tile.scores[q] + pos, sums[q][v]);
            highest[q] = f_max(highest[q], sums[q][v]);
        });
        for (int t = 0; Vectors < kTiles && t < kTiles; ++t) {
            if (t < first || t >= first + Vectors) f_store(tile.scores[q] + t * kTilePositions, f_set(-kInfinity));
        }
    });
    const F maxima = f_highest_each(highest);
    f_store(tile.maxima, maxima);
    join_maxima<Form::bf16_dot>(tile.state, maxima, joins);
}

template <int Queries>
FREEHOLD_APART void score(PairTile<Queries>& tile, const PieceView& piece, int head_dim, Joins& joins,
                          Softening& earlier, Pump& pump) {
    static_assert(kTiles == 4);
    const int first = piece.low / kTilePositions, last = (piece.high + kTilePositions - 1) / kTilePositions;
    switch (last - first) {
        case 4:
            return score_tiles<Queries, 4>(tile, piece, first, head_dim, joins, earlier, pump);
        case 3:
            return score_tiles<Queries, 3>(tile, piece, first, head_dim, joins, earlier, pump);
        case 2:
            return score_tiles<Queries, 2>(tile, piece, first, head_dim, joins, earlier, pump);
        default:
            return score_tiles<Queries, 1>(tile, piece, first, head_dim, joins, earlier, pump);
    }
}

// Adds what the queries see of the values of two positions: the rest may never have been written.
template <int Queries, int Vectors>
FREEHOLD_INLINE void add_seen_pairs(F (&sums)[Queries][Vectors], const I (&lines)[Vectors],
                                    const PairTile<Queries>& tile, int pos) {
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        const bool sees_even = pos >= tile.low[q] && pos < tile.high[q];
        const bool sees_odd = pos + 1 >= tile.low[q] && pos + 1 < tile.high[q];
        const I seen = i_set(static_cast<int>((sees_even ? 0xffffu : 0u) | (sees_odd ? 0xffff0000u : 0u)));
        int pair;
        std::memcpy(&pair, tile.weights[q] + pos, sizeof pair);
        const I all = i_set(pair);
        unrolled<Vectors>(
            [&](auto v) FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_dot_bf16(sums[q][v], i_and(lines[v], seen), all); });
    });
}

// Joins the weights' products with `Vectors` vectors of the values, from `element` on, to the states.
template <int Queries, int Vectors>
FREEHOLD_INLINE void add_values(const PairTile<Queries>& tile, const PieceView& piece, const Joins& joins, int element,
                                int stride, Pump& pump) {
    const std::ptrdiff_t pair_bytes = std::ptrdiff_t{stride} * 4;
    F sums[Queries][Vectors];
    clear(sums);
    for (int pos = piece.low & ~1; pos < piece.high;) {
        const std::uint8_t* at =
            piece.values[pos / kTilePositions] + pos % kTilePositions / 2 * pair_bytes + element * std::ptrdiff_t{4};
        const int tile_end = pos / kTilePositions * kTilePositions + kTilePositions;
        const int end = tile_end < piece.high ? tile_end : piece.high;
        for (; pos < end; pos += 2, at += pair_bytes) {
            pump.fetch<Pump::kWhileReading>();
            I lines[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { lines[v] = i_load(at + v * kLineBytes); });
            if (pos >= piece.common_low && pos + 1 < piece.common_high) {
                add_pairs(sums, lines, [&](int q) FREEHOLD_INLINE_LAMBDA { return tile.weights[q] + pos; });
            } else {
                add_seen_pairs(sums, lines, tile, pos);
            }
        }
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        join_values<Vectors>(tile.state[q] + kPartialHeader + element, joins.keep[q], joins.join[q], sums[q]);
    });
}

// Joins the weights' sums, as they are used, and their products with the values to the states.
template <int Queries>
FREEHOLD_APART void add_weights(const PairTile<Queries>& tile, const PieceView& piece, const Joins& joins, int stride,
                                Pump& pump) {
    F totals[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { totals[q] = f_sum_halves64(tile.weights[q]); });
    join_sums(tile.state, f_sum_each(totals), joins);
    constexpr int kWide = kScoreVectors;
    int element = 0;
    for (; element + kWide * kPanel <= stride; element += kWide * kPanel) {
        add_values<Queries, kWide>(tile, piece, joins, element, stride, pump);
    }
    for (; element < stride; element += kPanel) add_values<Queries, 1>(tile, piece, joins, element, stride, pump);
}

// Joins what the walk's next queries see of a piece to their states; all of them see something. In tiles of `Queries`;
// the rest of them in a smaller one.
template <int Queries>
void attend_in_pairs(QueryWalk& walk, const PieceView& piece, int num_queries, Pump& pump) {
    const KvView& kv = walk.call().kv;
    struct Turn {
        PairTile<Queries> tile;
        PieceView piece;
        Joins joins;
    };
    Turn turns[2];
    const Turn* earlier = nullptr;
    Softening softening;
    for (int number = 0;; ++number) {
        Turn& now = turns[number % 2];
        const bool more = num_queries >= Queries;
        if (more) {
            now.piece = piece;
            point_at(now.tile, now.piece, walk);
            score(now.tile, now.piece, kv.head_dim, now.joins, softening, pump);
            num_queries -= Queries;
        }
        softening.finish<Pump::kWhileWeighing / Queries>(pump);
        if (earlier != nullptr) add_weights(earlier->tile, earlier->piece, earlier->joins, kv.value_stride, pump);
        if (!more) break;
        softening = Softening(now.tile);
        earlier = &now;
    }
    if constexpr (Queries > 1) {
        if (num_queries > 0) attend_in_pairs<Queries - 1>(walk, piece, num_queries, pump);
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
