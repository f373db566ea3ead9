// Attention over paged keys and values, piece by piece (64 positions at absolute multiples of 64).
//
// Scores: lanes are positions, the chain runs over the head's elements. Values: lanes are elements, the chain runs over
// positions. A query's pieces are folded from left to right, whether one thread computes them in a row or several
// threads one each. What a query must not see gets weight 0; what was never written is never read as a number.
//
// Three forms: float32 keys and values; bf16 ones, widened; and, where the instruction set multiplies pairs of bf16
// (kBf16Dot) and the call allows it, bf16 queries and weights too, with exponentials to the base of two.
#pragma once

#include "kernels.h"
#include "kernels/bf16.h"
#include "kernels/exp.h"
#include "kernels/unrolled.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kTiles = kPiece / kTilePositions;
constexpr float kInfinity = __builtin_inff();

enum class Form { f32, bf16, bf16_dot };

// Brings what comes after a piece into the cache, a few lines whenever the piece itself has been read a bit further.
class Pump {
  public:
    FREEHOLD_INLINE explicit Pump(const KvAhead* ahead) {
        if (ahead == nullptr) return;
        const KvView& kv = ahead->kv;
        key_bytes_ = kv.key_elements() * kTilePositions * static_cast<int>(kv.element_bytes());
        value_bytes_ = kv.value_stride * kTilePositions * static_cast<int>(kv.element_bytes());
        for (int pos = ahead->first_pos; pos < ahead->end_pos && num_tiles_ < 2 * kTiles; pos += kTilePositions) {
            tiles_[num_tiles_++] = kv.key_tile(pos);
            tiles_[num_tiles_++] = kv.value_row(pos);
        }
    }
    FREEHOLD_INLINE void lines(int count) {
        for (; count > 0 && tile_ < num_tiles_; --count) {
            __builtin_prefetch(tiles_[tile_] + at_, 0, 2);
            at_ += kLineBytes;
            if (at_ >= (tile_ % 2 == 0 ? key_bytes_ : value_bytes_)) {
                at_ = 0;
                ++tile_;
            }
        }
    }
    FREEHOLD_INLINE bool done() const { return tile_ == num_tiles_; }

  private:
    const std::uint8_t* tiles_[2 * kTiles];
    int num_tiles_ = 0, tile_ = 0, at_ = 0;
    int key_bytes_ = 0, value_bytes_ = 0;
};

// The part of a piece that the queries of a tile see, and where it lies.
struct PieceView {
    const std::uint8_t* keys[kTiles];
    const std::uint8_t* values[kTiles];
    int low, high;                // positions that some query sees, counted from the piece's start
    int common_low, common_high;  // those that every query sees
};

template <Form, int Queries>
struct QueryTile {
    const float* query[Queries];
    float* state[Queries];
    int low[Queries], high[Queries];
    alignas(64) float weights[Queries][kPiece];
};
template <int Queries>
struct QueryTile<Form::bf16_dot, Queries> {
    const std::uint16_t* query[Queries];
    float* state[Queries];
    int low[Queries], high[Queries];
    alignas(64) float weights[Queries][kPiece];  // scores; then the first half of a row holds weights in bf16
    FREEHOLD_INLINE std::uint16_t* halves(int q) { return reinterpret_cast<std::uint16_t*>(weights[q]); }
    FREEHOLD_INLINE const std::uint16_t* halves(int q) const {
        return reinterpret_cast<const std::uint16_t*>(weights[q]);
    }
};

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
FREEHOLD_INLINE void score_tiles(QueryTile<form, Queries>& tile, const PieceView& piece, int first, int head_dim,
                                 Pump& pump) {
    Accumulators<Queries, Vectors> sums;
    if constexpr (form == Form::f32) {
        for (int e = 0; e < head_dim; ++e) {
            if (!pump.done()) pump.lines(Vectors);
            F keys[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                keys[v] = f_load(reinterpret_cast<const float*>(piece.keys[first + v]) + e * kTilePositions);
            });
            unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { sums.add(q, tile.query[q][e], keys); });
        }
    } else {
        for (int e = 0; e < head_dim; e += 2) {
            if (!pump.done()) pump.lines(Vectors);
            I keys[Vectors];
            unrolled<Vectors>(
                [&](auto v) FREEHOLD_INLINE_LAMBDA { keys[v] = i_load(piece.keys[first + v] + e / 2 * kLineBytes); });
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

template <Form form>
FREEHOLD_INLINE F f_softmax_exp(F x) {
    if constexpr (form == Form::bf16_dot) {
        return f_exp2(x);
    } else {
        return f_exp(x);
    }
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

// Scores of one key tile; minus infinity where a query sees nothing.
template <bool Whole, Form form, int Queries>
FREEHOLD_INLINE void raise_maxima(QueryTile<form, Queries>& tile, int pos, F (&highest)[Queries]) {
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        F scores = f_load(tile.weights[q] + pos);
        if constexpr (!Whole) {
            const int low = tile.low[q] - pos, high = tile.high[q] - pos;
            const M seen = lanes_between(low < 0        ? 0
                                         : low < kPanel ? low
                                                        : kPanel,
                                         high < 0        ? 0
                                         : high < kPanel ? high
                                                         : kPanel);
            scores = f_select(seen, scores, f_set(-kInfinity));
            f_store(tile.weights[q] + pos, scores);
        }
        highest[q] = f_max(highest[q], scores);
    });
}

// Scores → weights, exp(score - maximum), 0 where a query sees nothing; each query's maximum, and the sum of its
// weights as they are used.
template <Form form, int Queries>
FREEHOLD_INLINE void soften(QueryTile<form, Queries>& tile, const PieceView& piece, float (&maxima)[Queries],
                            float (&sums)[Queries]) {
    const int first = piece.low / kTilePositions * kTilePositions;
    F highest[Queries], maximum[Queries];
    WeightSum<form> total[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { highest[q] = f_set(-kInfinity); });
    for (int pos = first; pos < piece.high; pos += kTilePositions) {
        if (pos >= piece.common_low && pos + kTilePositions <= piece.common_high) {
            raise_maxima<true>(tile, pos, highest);
        } else {
            raise_maxima<false>(tile, pos, highest);
        }
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        maxima[q] = f_highest(highest[q]);
        maximum[q] = f_set(maxima[q]);
    });
    for (int pos = first; pos < piece.high; pos += kTilePositions) {
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

// How the piece joins what a query has so far: state = state * keep + piece * join.
template <int Queries>
struct Joins {
    float keep[Queries], join[Queries];
};

// Both factors for up to 16 queries at once, and their new maxima and sums.
template <Form form, int Queries>
FREEHOLD_INLINE void join_headers(QueryTile<form, Queries>& tile, const float* maxima, const float* sums,
                                  Joins<Queries>& joins) {
    alignas(64) float lanes[4][kPanel] = {};
    for (int q = 0; q < Queries; ++q) {
        const float old = tile.state[q][0];
        const float maximum = old > maxima[q] ? old : maxima[q];
        lanes[0][q] = old - maximum;
        lanes[1][q] = maxima[q] - maximum;
        tile.state[q][0] = maximum;
    }
    f_store(lanes[2], f_softmax_exp<form>(f_load(lanes[0])));
    f_store(lanes[3], f_softmax_exp<form>(f_load(lanes[1])));
    for (int q = 0; q < Queries; ++q) {
        joins.keep[q] = lanes[2][q];
        joins.join[q] = lanes[3][q];
        tile.state[q][1] = tile.state[q][1] * joins.keep[q] + sums[q] * joins.join[q];
    }
}

template <int Vectors>
FREEHOLD_INLINE void join_values(float* state, float keep, float join, const F (&values)[Vectors]) {
    const F keep_all = f_set(keep), join_all = f_set(join);
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        float* at = state + v * kPanel;
        f_store(at, f_fma(f_load(at), keep_all, f_mul(values[v], join_all)));
    });
}

// Values of two positions, `pos` and the next, in vectors of 16 elements from `element` on.
template <Form form, int Vectors>
struct ValuePair {
    I lines[Vectors];               // bf16: both positions in each lane
    F even[Vectors], odd[Vectors];  // otherwise

    FREEHOLD_INLINE ValuePair(const PieceView& piece, int pos, int element, int stride) {
        const std::uint8_t* row = piece.values[pos / kTilePositions];
        const int at = pos % kTilePositions * stride;
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            if constexpr (form == Form::f32) {
                const auto* floats = reinterpret_cast<const float*>(row) + at + element + v * kPanel;
                even[v] = f_load(floats);
                odd[v] = f_load(floats + stride);
            } else {
                lines[v] = i_load(row + 2 * (at + 2 * element) + v * kLineBytes);
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
FREEHOLD_INLINE void add_values(const QueryTile<form, Queries>& tile, const PieceView& piece,
                                const Joins<Queries>& joins, int element, int stride, Pump& pump) {
    Accumulators<Queries, Vectors> sums;
    for (int pos = piece.low & ~1; pos < piece.high; pos += 2) {
        if (!pump.done()) pump.lines(Vectors);
        const ValuePair<form, Vectors> values(piece, pos, element, stride);
        if (pos >= piece.common_low && pos + 1 < piece.common_high) {
            unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { values.add_to(sums, tile, q, pos); });
        } else {
            unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { values.add_seen(sums, tile, q, pos); });
        }
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        join_values<Vectors>(tile.state[q] + kPartialHeader + element, joins.keep[q], joins.join[q], sums.at[q]);
    });
}

// Joins what the tile's queries see of a piece to their states.
template <Form form, int Queries>
void attend_tile(QueryTile<form, Queries>& tile, const PieceView& piece, const KvView& kv, Pump& pump) {
    const int last = (piece.high + kTilePositions - 1) / kTilePositions;
    int t = piece.low / kTilePositions;
    for (; t + kScoreVectors <= last; t += kScoreVectors) {
        score_tiles<form, Queries, kScoreVectors>(tile, piece, t, kv.head_dim, pump);
    }
    for (; t < last; ++t) score_tiles<form, Queries, 1>(tile, piece, t, kv.head_dim, pump);
    float maxima[Queries], sums[Queries];
    soften(tile, piece, maxima, sums);
    Joins<Queries> joins;
    join_headers(tile, maxima, sums, joins);
    constexpr int kWide = kScoreVectors;
    int element = 0;
    for (; element + kWide * kPanel <= kv.value_stride; element += kWide * kPanel) {
        add_values<form, Queries, kWide>(tile, piece, joins, element, kv.value_stride, pump);
    }
    for (; element < kv.value_stride; element += kPanel) {
        add_values<form, Queries, 1>(tile, piece, joins, element, kv.value_stride, pump);
    }
}

// What query `token` of a call sees of a piece, counted from the piece's start; nothing if low >= high.
struct Seen {
    int low, high;
};

FREEHOLD_INLINE Seen seen_by(const AttendCall& call, int token, int piece_pos) {
    const int pos = call.first_pos + token;
    const int oldest = call.window > pos ? 0 : pos - call.window + 1;
    const int low = oldest > piece_pos ? oldest - piece_pos : 0;
    const int high = pos + 1 - piece_pos < kPiece ? pos + 1 - piece_pos : kPiece;
    return {low, high};
}

// Queries first, first + 1, ... of the call, all of which see something of the piece.
template <Form form, int Queries>
FREEHOLD_INLINE void attend_queries(const AttendCall& call, PieceView& piece, int piece_pos, int first, float* states,
                                    Pump& pump) {
    QueryTile<form, Queries> tile;
    piece.low = piece.common_high = kPiece;
    piece.high = piece.common_low = 0;
    int token = first / call.num_heads, head = first % call.num_heads;
    for (int q = 0; q < Queries; ++q) {
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(token) * call.query_stride + head * call.kv.head_dim;
        if constexpr (form == Form::bf16_dot) {
            tile.query[q] = call.half_queries + at;
        } else {
            tile.query[q] = call.queries + at;
        }
        tile.state[q] = states + static_cast<std::ptrdiff_t>(first + q) * partial_stride(call.kv.value_stride);
        const Seen seen = seen_by(call, token, piece_pos);
        tile.low[q] = seen.low;
        tile.high[q] = seen.high;
        piece.low = piece.low < seen.low ? piece.low : seen.low;
        piece.high = piece.high > seen.high ? piece.high : seen.high;
        piece.common_low = piece.common_low > seen.low ? piece.common_low : seen.low;
        piece.common_high = piece.common_high < seen.high ? piece.common_high : seen.high;
        if (++head == call.num_heads) ++token, head = 0;
    }
    attend_tile<form, Queries>(tile, piece, call.kv, pump);
}

// The next `left` queries in as few tiles as possible.
template <Form form, int Queries>
FREEHOLD_INLINE int attend_most(const AttendCall& call, PieceView& piece, int piece_pos, int first, int left,
                                float* states, Pump& pump) {
    if constexpr (Queries > 1) {
        if (left < Queries) return attend_most<form, Queries - 1>(call, piece, piece_pos, first, left, states, pump);
    }
    attend_queries<form, Queries>(call, piece, piece_pos, first, states, pump);
    return Queries;
}

template <Form form>
void attend_form(const AttendCall& call, int piece_index, float* states) {
    const int piece_pos = piece_index * kPiece;
    PieceView piece{};
    int begin = 0, end = call.num_tokens;  // tokens that see something
    while (begin < end && seen_by(call, begin, piece_pos).high <= 0) ++begin;
    while (end > begin) {
        const Seen seen = seen_by(call, end - 1, piece_pos);
        if (seen.low < seen.high) break;
        --end;
    }
    if (begin == end) return;
    const int high = seen_by(call, end - 1, piece_pos).high;
    for (int t = 0; t * kTilePositions < high; ++t) {
        piece.keys[t] = call.kv.key_tile(piece_pos + t * kTilePositions);
        piece.values[t] = call.kv.value_row(piece_pos + t * kTilePositions);
    }
    Pump pump(call.ahead);
    for (int first = begin * call.num_heads, last = end * call.num_heads; first < last;) {
        first += attend_most<form, kMaxQueryTile>(call, piece, piece_pos, first, last - first, states, pump);
    }
    while (!pump.done()) pump.lines(kTiles);
}

// Joins what the queries see of one piece to their states; those that see nothing of it keep theirs.
void attend_piece(const AttendCall& call, int piece_index, float* states) {
    if constexpr (kBf16Dot) {
        if (call.half_queries != nullptr) return attend_form<Form::bf16_dot>(call, piece_index, states);
    }
    if (call.kv.bf16) {
        attend_form<Form::bf16>(call, piece_index, states);
    } else {
        attend_form<Form::f32>(call, piece_index, states);
    }
}

template <Form form>
FREEHOLD_INLINE void fold_form(float* state, const float* piece, int num_queries, int value_stride) {
    const int stride = partial_stride(value_stride);
    for (int q = 0; q < num_queries; ++q, state += stride, piece += stride) {
        if (piece[0] == -kInfinity) continue;
        QueryTile<form, 1> tile;
        tile.state[0] = state;
        Joins<1> joins;
        join_headers(tile, piece, piece + 1, joins);
        for (int i = kPartialHeader; i < stride; i += kPanel) {
            const F values[1] = {f_load(piece + i)};
            join_values<1>(state + i, joins.keep[0], joins.join[0], values);
        }
    }
}

void fold(bool bf16_dot, float* state, const float* piece, int num_queries, int value_stride) {
    if constexpr (kBf16Dot) {
        if (bf16_dot) return fold_form<Form::bf16_dot>(state, piece, num_queries, value_stride);
    }
    fold_form<Form::f32>(state, piece, num_queries, value_stride);
}

void finish(const float* state, int head_dim, float* out) {
    const float sum = state[1];
    for (int i = 0; i < head_dim; ++i) out[i] = state[kPartialHeader + i] / sum;
}

constexpr int kBf16Chunk = 256;  // elements of a head that are rounded at a time

void store_key(const KvView& kv, int pos, const float* key) {
    std::uint8_t* lane = kv.key_tile(pos) + 4 * (pos % kTilePositions);
    if (!kv.bf16) {
        for (int e = 0; e < kv.head_dim; ++e) std::memcpy(lane + e * kLineBytes, key + e, 4);
        return;
    }
    alignas(64) std::uint16_t halves[kBf16Chunk];
    for (int begin = 0; begin < kv.head_dim; begin += kBf16Chunk) {
        const int count = kv.head_dim - begin < kBf16Chunk ? kv.head_dim - begin : kBf16Chunk;
        to_bf16(key + begin, count, 1.0f, halves);
        for (int e = 0; e < count; e += 2) std::memcpy(lane + (begin + e) / 2 * kLineBytes, halves + e, 4);
    }
}

void store_value(const KvView& kv, int pos, const float* value) {
    const int in_tile = pos % kTilePositions;
    std::uint8_t* rows = kv.value_row(pos - in_tile);
    if (!kv.bf16) {
        auto* row = reinterpret_cast<float*>(rows) + in_tile * kv.value_stride;
        for (int e = 0; e < kv.value_stride; ++e) row[e] = e < kv.head_dim ? value[e] : 0.0f;
        return;
    }
    auto* pairs = reinterpret_cast<std::uint16_t*>(rows) + (in_tile & ~1) * kv.value_stride + (in_tile & 1);
    alignas(64) std::uint16_t halves[kBf16Chunk];
    for (int begin = 0; begin < kv.value_stride; begin += kBf16Chunk) {
        const int end = kv.value_stride < begin + kBf16Chunk ? kv.value_stride : begin + kBf16Chunk;
        const int count = (kv.head_dim < end ? kv.head_dim : end) - begin;
        if (count > 0) to_bf16(value + begin, count, 1.0f, halves);
        for (int e = 0; begin + e < end; ++e) pairs[2 * (begin + e)] = e < count ? halves[e] : std::uint16_t{0};
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
