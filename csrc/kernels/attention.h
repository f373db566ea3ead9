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
#include "kernels/attention_bf16_dot.h"
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
    Joins joins;
    soften(tile, piece, joins, pump);
    constexpr int kWide = kScoreVectors;
    int element = 0;
    for (; element + kWide * kPanel <= kv.value_stride; element += kWide * kPanel) {
        add_values<form, Queries, kWide>(tile, piece, joins, element, kv.value_stride, pump);
    }
    for (; element < kv.value_stride; element += kPanel) {
        add_values<form, Queries, 1>(tile, piece, joins, element, kv.value_stride, pump);
    }
}

// The next `left` queries in as few tiles as possible.
template <Form form, int Queries>
FREEHOLD_INLINE int attend_most(QueryWalk& walk, PieceView& piece, int left, Pump& pump) {
    if constexpr (Queries > 1) {
        if (left < Queries) return attend_most<form, Queries - 1>(walk, piece, left, pump);
    }
    QueryTile<form, Queries> tile;
    point_at(tile, piece, walk);
    attend_tile<form, Queries>(tile, piece, walk.call().kv, pump);
    return Queries;
}

template <Form form>
void attend_form(const AttendCall& call, int piece_index, float* states) {
    PieceView piece{};
    piece.pos = piece_index * kPiece;
    int begin = 0, end = call.num_tokens;  // tokens that see something
    while (begin < end && seen_by(call, begin, piece.pos).high <= 0) ++begin;
    while (end > begin) {
        const Seen seen = seen_by(call, end - 1, piece.pos);
        if (seen.low < seen.high) break;
        --end;
    }
    if (begin == end) return;
    const Seen by_first = seen_by(call, begin, piece.pos), by_last = seen_by(call, end - 1, piece.pos);
    piece.low = by_first.low;
    piece.common_high = by_first.high;
    piece.common_low = by_last.low;
    piece.high = by_last.high;
    TileWalk tiles(call.kv, piece.pos);
    for (int t = 0; t * kTilePositions < piece.high; ++t, tiles.advance()) {
        piece.keys[t] = tiles.keys();
        piece.values[t] = tiles.values();
    }
    Pump pump(call.ahead);
    QueryWalk walk(call, begin, states);
    const int num_queries = (end - begin) * call.num_heads;
    if constexpr (form == Form::bf16_dot) {
        attend_in_pairs<kMaxQueryTile>(walk, piece, num_queries, pump);
    } else {
        for (int left = num_queries; left > 0;) {
            PieceView part = piece;
            left -= attend_most<form, kMaxQueryTile>(walk, part, left, pump);
        }
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
        float* const states[1] = {state};
        Joins joins;
        join_maxima<form>(states, f_set(piece[0]), joins);
        join_sums(states, f_set(piece[1]), joins);
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
