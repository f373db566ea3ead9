// Attention over paged keys and values, piece by piece (64 positions at absolute multiples of 64).
//
// Scores: lanes are positions, the chain runs over the head's elements. Values: lanes are elements, the chain runs over
// positions. Only positions that a query sees enter its sums, so masked keys and values are never read as numbers.
#pragma once

#include "kernels.h"
#include "kernels/exp.h"
#include "kernels/unrolled.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kTiles = kPiece / kTilePositions;
constexpr float kInfinity = __builtin_inff();

template <bool Bf16>
FREEHOLD_INLINE F load_kv(const std::uint8_t* p, int index) {
    if constexpr (Bf16) {
        return f_bf16(p + 2 * index);
    } else {
        return f_load(reinterpret_cast<const float*>(p) + index);
    }
}

// The part of a piece that a run of queries sees, and where it lies.
struct PieceView {
    const std::uint8_t* keys[kTiles];
    const std::uint8_t* values[kTiles];
    int low, high;  // positions seen, counted from the piece's start
};

template <int Queries>
struct QueryTile {
    const float* query[Queries];
    float* partial[Queries];
    alignas(64) float weights[Queries][kPiece];
};

template <bool Bf16, int Queries, int Vectors>
FREEHOLD_INLINE void score_tiles(QueryTile<Queries>& tile, const PieceView& piece, int first, int head_dim) {
    F sums[Queries][Vectors];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_zero(); });
    });
    for (int e = 0; e < head_dim; ++e) {
        F keys[Vectors];
        unrolled<Vectors>(
            [&](auto v) FREEHOLD_INLINE_LAMBDA { keys[v] = load_kv<Bf16>(piece.keys[first + v], e * kTilePositions); });
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            const F element = f_set(tile.query[q][e]);
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_fma(element, keys[v], sums[q][v]); });
        });
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            f_store(tile.weights[q] + (first + v) * kTilePositions, sums[q][v]);
        });
    });
}

// Scores → weights exp(score - maximum), 0 where masked; writes the partial's maximum and sum.
FREEHOLD_INLINE void soften(float* weights, const PieceView& piece, float* partial) {
    const int first = piece.low / kTilePositions;
    const int last = (piece.high + kTilePositions - 1) / kTilePositions;
    F highest = f_set(-kInfinity);
    for (int t = first; t < last; ++t) {
        const M seen = lanes_between(piece.low > t * kTilePositions ? piece.low - t * kTilePositions : 0,
                                     piece.high < (t + 1) * kTilePositions ? piece.high - t * kTilePositions : 16);
        const F scores = f_select(seen, f_load(weights + t * kTilePositions), f_set(-kInfinity));
        f_store(weights + t * kTilePositions, scores);
        highest = f_max(highest, scores);
    }
    const float maximum = f_highest(highest);
    F sum = f_zero();
    for (int t = first; t < last; ++t) {
        const F weight = f_exp(f_sub(f_load(weights + t * kTilePositions), f_set(maximum)));
        f_store(weights + t * kTilePositions, weight);
        sum = f_add(sum, weight);
    }
    partial[0] = maximum;
    partial[1] = f_sum(sum);
    partial[2] = 1.0f;
}

template <bool Bf16, int Queries, int Vectors>
FREEHOLD_INLINE void add_values(const QueryTile<Queries>& tile, const PieceView& piece, int element, int stride) {
    F sums[Queries][Vectors];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_zero(); });
    });
    for (int pos = piece.low; pos < piece.high; ++pos) {
        const std::uint8_t* row = piece.values[pos / kTilePositions];
        const int at = pos % kTilePositions * stride + element;
        F values[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { values[v] = load_kv<Bf16>(row, at + v * kPanel); });
        unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
            const F weight = f_set(tile.weights[q][pos]);
            unrolled<Vectors>([&](auto v)
                                  FREEHOLD_INLINE_LAMBDA { sums[q][v] = f_fma(weight, values[v], sums[q][v]); });
        });
    }
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            f_store(tile.partial[q] + kPartialHeader + element + v * kPanel, sums[q][v]);
        });
    });
}

template <bool Bf16, int Queries>
void attend_tile(QueryTile<Queries>& tile, const PieceView& piece, const KvView& kv) {
    const int last = (piece.high + kTilePositions - 1) / kTilePositions;
    int t = piece.low / kTilePositions;
    for (; t + kScoreVectors <= last; t += kScoreVectors) {
        score_tiles<Bf16, Queries, kScoreVectors>(tile, piece, t, kv.head_dim);
    }
    for (; t < last; ++t) score_tiles<Bf16, Queries, 1>(tile, piece, t, kv.head_dim);
    for (int q = 0; q < Queries; ++q) soften(tile.weights[q], piece, tile.partial[q]);
    constexpr int kWide = kScoreVectors;
    int element = 0;
    for (; element + kWide * kPanel <= kv.value_stride; element += kWide * kPanel) {
        add_values<Bf16, Queries, kWide>(tile, piece, element, kv.value_stride);
    }
    for (; element < kv.value_stride; element += kPanel) {
        add_values<Bf16, Queries, 1>(tile, piece, element, kv.value_stride);
    }
}

template <bool Bf16, int Queries>
FREEHOLD_INLINE void attend_queries(const AttendCall& call, const PieceView& piece, int first, float* partials) {
    QueryTile<Queries> tile;
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        const int token = (first + q) / call.num_heads;
        const int head = (first + q) % call.num_heads;
        tile.query[q] = call.queries + static_cast<std::ptrdiff_t>(token) * call.query_stride + head * call.kv.head_dim;
        tile.partial[q] = partials + static_cast<std::ptrdiff_t>(first + q) * partial_stride(call.kv.value_stride);
    });
    attend_tile<Bf16, Queries>(tile, piece, call.kv);
}

// Queries [first, last) see the same part of the piece.
template <bool Bf16>
void attend_run(const AttendCall& call, const PieceView& piece, int first, int last, float* partials) {
    while (first < last) {
        const int left = last - first;
        if constexpr (kMaxQueryTile >= 6) {
            if (left >= 6) {
                attend_queries<Bf16, 6>(call, piece, first, partials);
                first += 6;
                continue;
            }
            if (left >= 4) {
                attend_queries<Bf16, 4>(call, piece, first, partials);
                first += 4;
                continue;
            }
        }
        if constexpr (kMaxQueryTile >= 3) {
            if (left >= 3) {
                attend_queries<Bf16, 3>(call, piece, first, partials);
                first += 3;
                continue;
            }
        }
        if (left >= 2) {
            attend_queries<Bf16, 2>(call, piece, first, partials);
            first += 2;
        } else {
            attend_queries<Bf16, 1>(call, piece, first, partials);
            first += 1;
        }
    }
}

struct Seen {
    int low, high;
    bool operator==(const Seen&) const = default;
};

FREEHOLD_INLINE Seen seen_by(const AttendCall& call, int token, int piece_pos) {
    const int pos = call.first_pos + token;
    const int oldest = call.window > pos ? 0 : pos - call.window + 1;
    const int low = oldest > piece_pos ? oldest - piece_pos : 0;
    const int high = pos + 1 - piece_pos < kPiece ? pos + 1 - piece_pos : kPiece;
    return {low, high};
}

void attend_piece(const AttendCall& call, int piece_index, float* partials) {
    const int piece_pos = piece_index * kPiece;
    const int stride = partial_stride(call.kv.value_stride);
    PieceView piece{};
    int num_located = 0;
    for (int token = 0, next; token < call.num_tokens; token = next) {
        const Seen seen = seen_by(call, token, piece_pos);
        for (next = token + 1; next < call.num_tokens && seen_by(call, next, piece_pos) == seen;) ++next;
        const int first = token * call.num_heads;
        const int last = next * call.num_heads;
        if (seen.low >= seen.high) {
            for (int q = first; q < last; ++q) partials[static_cast<std::ptrdiff_t>(q) * stride + 2] = 0.0f;
            continue;
        }
        for (; num_located * kTilePositions < seen.high; ++num_located) {
            const int pos = piece_pos + num_located * kTilePositions;
            piece.keys[num_located] = call.kv.key_tile(pos);
            piece.values[num_located] = call.kv.value_row(pos);
        }
        piece.low = seen.low;
        piece.high = seen.high;
        if (call.kv.bf16) {
            attend_run<true>(call, piece, first, last, partials);
        } else {
            attend_run<false>(call, piece, first, last, partials);
        }
    }
}

void fold(float* state, const float* partials, int num_queries, int value_stride) {
    const int stride = partial_stride(value_stride);
    for (int q = 0; q < num_queries; ++q, state += stride, partials += stride) {
        if (partials[2] == 0.0f) continue;
        if (state[2] == 0.0f) {
            for (int i = 0; i < stride; ++i) state[i] = partials[i];
            continue;
        }
        const float maximum = state[0] > partials[0] ? state[0] : partials[0];
        const F keep = f_exp(f_set(state[0] - maximum));
        const F join = f_exp(f_set(partials[0] - maximum));
        alignas(64) float factors[2][kPanel];
        f_store(factors[0], keep);
        f_store(factors[1], join);
        state[0] = maximum;
        state[1] = state[1] * factors[0][0] + partials[1] * factors[1][0];
        for (int i = kPartialHeader; i < stride; i += kPanel) {
            f_store(state + i, f_fma(f_load(state + i), keep, f_mul(f_load(partials + i), join)));
        }
    }
}

void finish(const float* state, int head_dim, float* out) {
    const float sum = state[1];
    for (int i = 0; i < head_dim; ++i) out[i] = state[kPartialHeader + i] / sum;
}

void store_element(std::uint8_t* p, int index, float value, bool bf16) {
    if (bf16) {
        const std::uint16_t half = float_to_bf16(value);
        std::memcpy(p + 2 * index, &half, sizeof half);
    } else {
        std::memcpy(p + 4 * index, &value, sizeof value);
    }
}

void store_key(const KvView& kv, int pos, const float* key) {
    std::uint8_t* tile = kv.key_tile(pos);
    const int lane = pos % kTilePositions;
    for (int e = 0; e < kv.head_dim; ++e) store_element(tile, e * kTilePositions + lane, key[e], kv.bf16);
}

void store_value(const KvView& kv, int pos, const float* value) {
    std::uint8_t* row = kv.value_row(pos);
    for (int e = 0; e < kv.value_stride; ++e) store_element(row, e, e < kv.head_dim ? value[e] : 0.0f, kv.bf16);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
