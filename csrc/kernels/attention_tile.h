// What all forms of attention share: the part of a piece that a tile of queries sees, softmax, and how pieces are
// joined. See kernels/attention.h.
#pragma once

#include "kernels.h"
#include "kernels/exp.h"
#include "kernels/unrolled.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kTiles = kPiece / kTilePositions;
constexpr float kInfinity = __builtin_inff();

enum class Form { f32, bf16, bf16_dot, int8 };

// The tiles of a request's keys and values, one after the other from position `pos` on, a multiple of 16.
class TileWalk {
  public:
    FREEHOLD_INLINE TileWalk(const KvView& kv, int pos)
        : kv_(kv),
          key_bytes_(kv.key_tile_bytes()),
          value_bytes_(kv.value_tile_bytes()),
          tiles_per_block_(kv.block_size / kTilePositions),
          tile_(pos % kv.block_size / kTilePositions),
          block_id_(kv.block_ids + pos / kv.block_size) {}
    FREEHOLD_INLINE std::size_t key_bytes() const { return key_bytes_; }
    FREEHOLD_INLINE std::size_t value_bytes() const { return value_bytes_; }
    FREEHOLD_INLINE const std::uint8_t* keys() const { return block() + kv_.keys_at + tile_ * key_bytes_; }
    FREEHOLD_INLINE const std::uint8_t* values() const { return block() + kv_.values_at + tile_ * value_bytes_; }
    FREEHOLD_INLINE void advance() {
        if (++tile_ == tiles_per_block_) tile_ = 0, ++block_id_;
    }

  private:
    FREEHOLD_INLINE const std::uint8_t* block() const {
        return kv_.base + kv_.block_bytes * static_cast<std::size_t>(*block_id_);
    }

    const KvView& kv_;
    std::size_t key_bytes_, value_bytes_;
    std::size_t tiles_per_block_, tile_;
    const std::int32_t* block_id_;
};

// Brings what comes after a piece into the cache, evenly over all that the piece takes: memory that rests for a moment
// is lost, and so is time in which more is asked of it than it can take.
class Pump {
  public:
    // Lines to fetch for each four of keys or values that are read, and the rest meanwhile in the softmax.
    static constexpr int kWhileReading = 3, kWhileRaising = 4, kWhileSoftening = 8;
    // The same as the last two together, for softmax that does one query after the other.
    static constexpr int kWhileWeighing = kWhileRaising + kWhileSoftening;

    FREEHOLD_INLINE explicit Pump(const KvAhead* ahead) {
        if (ahead == nullptr || ahead->first_pos >= ahead->end_pos) return;
        TileWalk walk(ahead->kv, ahead->first_pos);
        for (int pos = ahead->first_pos; pos < ahead->end_pos && num_runs_ < 2 * kTiles; pos += kTilePositions) {
            runs_[num_runs_++] = {walk.keys(), walk.keys() + walk.key_bytes()};
            runs_[num_runs_++] = {walk.values(), walk.values() + walk.value_bytes()};
            walk.advance();
        }
        begin_run();
    }
    template <int Lines>
    FREEHOLD_INLINE void fetch() {
        if (at_ == nullptr) return;
        unrolled<Lines>([&](auto i) FREEHOLD_INLINE_LAMBDA { __builtin_prefetch(at_ + i * kLineBytes, 0, 2); });
        at_ += Lines * kLineBytes;
        if (at_ >= end_) begin_run();
    }
    FREEHOLD_INLINE void finish() {
        while (at_ != nullptr) fetch<4>();
    }

  private:
    struct Run {
        const std::uint8_t *begin, *end;
    };

    FREEHOLD_INLINE void begin_run() {
        if (run_ == num_runs_) {
            at_ = nullptr;
        } else {
            at_ = runs_[run_].begin;
            end_ = runs_[run_++].end;
        }
    }

    const std::uint8_t* at_ = nullptr;  // null when all is fetched
    const std::uint8_t* end_ = nullptr;
    Run runs_[2 * kTiles];
    int num_runs_ = 0, run_ = 0;
};

// The part of a piece that the queries of a tile see, and where it lies.
struct PieceView {
    const std::uint8_t* keys[kTiles];
    const std::uint8_t* values[kTiles];
    int pos;                      // of its start
    int low, high;                // positions that some query sees, counted from there
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
    alignas(64) float scores[Queries][kPiece];  // minus infinity where a query sees nothing
    alignas(64) float maxima[kPanel];           // of these
    alignas(64) std::uint16_t weights[Queries][kPiece];
};

// Queries and weights are integers of 15 and 14 bits, in two planes of bytes: 128 * high + low.
template <int Queries>
struct QueryTile<Form::int8, Queries> {
    const std::uint8_t* query[Queries];  // as quantize_query leaves them
    float* state[Queries];
    int low[Queries], high[Queries];
    alignas(64) float weights[Queries][kPiece];          // scores; then weights times the scales of their values
    alignas(64) std::int8_t planes[Queries][2][kPiece];  // the same as integers
    float weight_scale[Queries];                         // of these
    int weight_bias[Queries];                            // 128 * their sum
};

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

// The queries of a call, one after the other, and their states.
class QueryWalk {
  public:
    FREEHOLD_INLINE QueryWalk(const AttendCall& call, int token, float* states)
        : call_(call), token_(token), state_(states) {
        state_ += std::ptrdiff_t{token} * call.num_heads * partial_stride(call.kv.value_stride);
    }
    FREEHOLD_INLINE const AttendCall& call() const { return call_; }
    FREEHOLD_INLINE int token() const { return token_; }
    FREEHOLD_INLINE float* state() const { return state_; }
    template <Form form>
    FREEHOLD_INLINE auto query() const {
        if constexpr (form == Form::int8) {
            return call_.int8_queries + token_ * call_.int8_stride + head_ * int8_query_bytes(call_.kv.head_dim);
        } else {
            const std::ptrdiff_t at = std::ptrdiff_t{token_} * call_.query_stride + head_ * call_.kv.head_dim;
            if constexpr (form == Form::bf16_dot) {
                return call_.half_queries + at;
            } else {
                return call_.queries + at;
            }
        }
    }
    FREEHOLD_INLINE void advance() {
        state_ += partial_stride(call_.kv.value_stride);
        if (++head_ == call_.num_heads) ++token_, head_ = 0;
    }

  private:
    const AttendCall& call_;
    int token_, head_ = 0;
    float* state_;
};

// Makes a tile of the walk's next queries, all of which see something of the piece.
template <Form form, int Queries>
FREEHOLD_INLINE void point_at(QueryTile<form, Queries>& tile, PieceView& piece, QueryWalk& walk) {
    const bool all_whole = piece.common_low == 0 && piece.common_high == kPiece;  // for every query of the call
    if (!all_whole) {
        piece.low = piece.common_high = kPiece;
        piece.high = piece.common_low = 0;
    }
    for (int q = 0; q < Queries; ++q, walk.advance()) {
        tile.query[q] = walk.query<form>();
        tile.state[q] = walk.state();
        if (all_whole) continue;
        const Seen seen = seen_by(walk.call(), walk.token(), piece.pos);
        tile.low[q] = seen.low;
        tile.high[q] = seen.high;
        piece.low = piece.low < seen.low ? piece.low : seen.low;
        piece.high = piece.high > seen.high ? piece.high : seen.high;
        piece.common_low = piece.common_low > seen.low ? piece.common_low : seen.low;
        piece.common_high = piece.common_high < seen.high ? piece.common_high : seen.high;
    }
}

template <Form form>
FREEHOLD_INLINE F f_softmax_exp(F x) {
    if constexpr (kBf16Dot && (form == Form::bf16_dot || form == Form::int8)) {
        return f_exp2(x);
    } else {
        return f_exp(x);
    }
}

// Which of 16 positions query q sees.
template <Form form, int Queries>
FREEHOLD_INLINE M seen_lanes(const QueryTile<form, Queries>& tile, int q, int pos) {
    const int low = tile.low[q] - pos, high = tile.high[q] - pos;
    return lanes_between(low < 0 ? 0 : low < kPanel ? low : kPanel, high < 0 ? 0 : high < kPanel ? high : kPanel);
}

// True if every query sees all of 16 positions.
FREEHOLD_INLINE bool all_see(const PieceView& piece, int pos) {
    return pos >= piece.common_low && pos + kTilePositions <= piece.common_high;
}

// Scores of one key tile; minus infinity where a query sees nothing.
template <bool Whole, Form form, int Queries>
FREEHOLD_INLINE void raise_maxima(QueryTile<form, Queries>& tile, int pos, F (&highest)[Queries]) {
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA {
        F scores = f_load(tile.weights[q] + pos);
        if constexpr (!Whole) {
            const M seen = seen_lanes(tile, q, pos);
            scores = f_select(seen, scores, f_set(-kInfinity));
            f_store(tile.weights[q] + pos, scores);
        }
        highest[q] = f_max(highest[q], scores);
    });
}

// Each query's highest score, one a lane; scores that it doesn't see become minus infinity.
template <Form form, int Queries>
FREEHOLD_INLINE F find_maxima(QueryTile<form, Queries>& tile, const PieceView& piece, Pump& pump) {
    F highest[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { highest[q] = f_set(-kInfinity); });
    for (int pos = piece.low / kTilePositions * kTilePositions; pos < piece.high; pos += kTilePositions) {
        pump.fetch<Pump::kWhileRaising>();
        if (all_see(piece, pos)) {
            raise_maxima<true>(tile, pos, highest);
        } else {
            raise_maxima<false>(tile, pos, highest);
        }
    }
    return f_highest_each(highest);
}

// How the piece joins what queries have so far: state = state * keep + piece * join. One lane a query.
struct Joins {
    alignas(64) float keep[kPanel], join[kPanel];
};

// Both factors, and the states' new maxima.
template <Form form, int Queries>
FREEHOLD_INLINE void join_maxima(float* const (&state)[Queries], F maxima, Joins& joins) {
    float old[Queries];
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { old[q] = state[q][0]; });
    const F before = f_collect(old), after = f_max(before, maxima);
    f_store(joins.keep, f_softmax_exp<form>(f_sub(before, after)));
    f_store(joins.join, f_softmax_exp<form>(f_sub(maxima, after)));
    alignas(64) float lanes[kPanel];
    f_store(lanes, after);
    unrolled<Queries>([&](auto q) FREEHOLD_INLINE_LAMBDA { state[q][0] = lanes[q]; });
}

template <int Queries>
FREEHOLD_INLINE void join_sums(float* const (&state)[Queries], F sums, const Joins& joins) {
    alignas(64) float lanes[kPanel];
    f_store(lanes, sums);
    unrolled<Queries>(
        [&](auto q) FREEHOLD_INLINE_LAMBDA { state[q][1] = state[q][1] * joins.keep[q] + lanes[q] * joins.join[q]; });
}

template <int Vectors>
FREEHOLD_INLINE void join_values(float* state, float keep, float join, const F (&values)[Vectors]) {
    const F keep_all = f_set(keep), join_all = f_set(join);
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        float* at = state + v * kPanel;
        f_store(at, f_fma(f_load(at), keep_all, f_mul(values[v], join_all)));
    });
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
