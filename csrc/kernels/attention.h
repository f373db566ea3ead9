// Attention over paged keys and values, piece by piece (64 positions at absolute multiples of 64).
//
// Scores: lanes are positions, the chain runs over the head's elements. Values: lanes are elements, the chain runs over
// positions. A query's pieces are folded from left to right, whether one thread computes them in a row or several
// threads one each. What a query must not see gets weight 0; what was never written is never read as a number.
//
// Four forms: float32 keys and values; bf16 ones, widened; where the instruction set multiplies pairs of bf16
// (kBf16Dot) and the call allows it, bf16 queries and weights too; and int8 keys and values with integer queries and
// weights. The last two take exponentials to the base of two where kBf16Dot brings them.
#pragma once

#include "kernels.h"
#include "kernels/attention_float.h"
#include "kernels/attention_int8.h"

namespace freehold::FREEHOLD_ISA {
namespace {

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
    soften(tile, piece, maxima, sums, pump);
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
        if constexpr (form == Form::int8) {
            tile.query[q] = call.int8_queries + token * call.int8_stride + head * int8_query_bytes(call.kv.head_dim);
        } else {
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(token) * call.query_stride + head * call.kv.head_dim;
            if constexpr (form == Form::bf16_dot) {
                tile.query[q] = call.half_queries + at;
            } else {
                tile.query[q] = call.queries + at;
            }
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
    TileWalk walk(call.kv, piece_pos);
    for (int t = 0; t * kTilePositions < high; ++t, walk.advance()) {
        piece.keys[t] = walk.keys();
        piece.values[t] = walk.values();
    }
    Pump pump(call.ahead);
    for (int first = begin * call.num_heads, last = end * call.num_heads; first < last;) {
        first += attend_most<form, kMaxQueryTile>(call, piece, piece_pos, first, last - first, states, pump);
    }
    pump.finish();
}

// Joins what the queries see of one piece to their states; those that see nothing of it keep theirs.
void attend_piece(const AttendCall& call, int piece_index, float* states) {
    if constexpr (kBf16Dot) {
        if (call.half_queries != nullptr) return attend_form<Form::bf16_dot>(call, piece_index, states);
    }
    switch (call.kv.format) {
        case KvFormat::f32:
            return attend_form<Form::f32>(call, piece_index, states);
        case KvFormat::bf16:
            return attend_form<Form::bf16>(call, piece_index, states);
        case KvFormat::int8:
            return attend_form<Form::int8>(call, piece_index, states);
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

void fold(bool base_two, float* state, const float* piece, int num_queries, int value_stride) {
    if constexpr (kBf16Dot) {
        if (base_two) return fold_form<Form::bf16_dot>(state, piece, num_queries, value_stride);
    }
    fold_form<Form::f32>(state, piece, num_queries, value_stride);
}

void finish(const float* state, int head_dim, float* out) {
    const float sum = state[1];
    for (int i = 0; i < head_dim; ++i) out[i] = state[kPartialHeader + i] / sum;
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
