// What every instruction set implements: one table of functions, chosen once at start-up.
//
// Law of these functions: what they compute for a row depends on that row alone. Every sum has one order, fixed by the
// layouts and by absolute positions; tiles, rows, strips and threads never change it. Tables of different instruction
// sets may differ in the last bits.
//
// Float rows are padded with zeros to a multiple of 32, and "padded" sizes below are such multiples.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inlining.h"
#include "integer_scales.h"
#include "layouts.h"
#include "noise.h"

namespace freehold {

inline constexpr int kPiece = 64;              // positions of an attention piece, aligned to absolute positions
inline constexpr int kTilePositions = kPanel;  // positions of a key tile

// Rows that enter a linear layer. Quantized parts are filled where weights are quantized and activations are int8.
struct Activations {
    float* x = nullptr;               // (rows, stride)
    std::int8_t* q = nullptr;         // (rows, stride): x / scale, rounded
    float* scale = nullptr;           // (rows, stride / group)
    std::int32_t* sums = nullptr;     // (rows, stride / group): sums of q
    float* scaled_sums = nullptr;     // (rows, stride / 16): scale * sum, if the group is 16
    float* scaled_sums32 = nullptr;   // (rows, stride / 32): the same over 32 inputs
    std::uint8_t* records = nullptr;  // (rows, records_stride): all that, as layouts with integer scales read it
    float* tops = nullptr;            // (rows): the largest scale; with records
    int stride = 0;                   // padded inputs
    int group = kFineGroup;           // inputs that share one scale: 16 or 32

    // The rows from `row` on.
    FREEHOLD_INLINE Activations from_row(int row) const {
        const std::ptrdiff_t inputs = std::ptrdiff_t{row} * stride;
        Activations a = *this;
        if (x != nullptr) a.x += inputs;
        if (q == nullptr) return a;
        a.q += inputs;
        a.scale += inputs / group;
        a.sums += inputs / group;
        a.scaled_sums += inputs / kFineGroup;
        a.scaled_sums32 += inputs / (2 * kFineGroup);
        if (records == nullptr) return a;
        a.records += row * records_stride(stride, group);
        a.tops += row;
        return a;
    }
};

// Memory that a thread will read after the matrices at hand. Tiles of many rows ask for some lines of it with each
// cell: the multipliers are busy meanwhile, and memory rests.
struct Background {
    static constexpr int kLines = 6;

    const std::uint8_t* at = nullptr;  // null: nothing is left
    const std::uint8_t* end = nullptr;
    void (*more)(Background& self) = nullptr;  // goes on to what comes after `end`

    FREEHOLD_INLINE void fetch() {
        if (at == nullptr) return;
        for (int line = 0; line < kLines; ++line) __builtin_prefetch(at + line * kLineBytes, 0, 2);
        at += kLines * kLineBytes;
        if (at >= end) more(*this);
    }
};

// out[row, column] (+)= sum over inputs of weight * activation, for some rows and some strips of a matrix.
struct LinearCall {
    const std::uint8_t* weights;
    std::size_t strip_bytes;
    LayoutId layout;
    int num_inputs;
    int strip_begin, strip_end;
    const Activations* input;
    int row_begin, row_end;
    float* out;  // (rows, out_stride); whole strips are written, padding included
    int out_stride;
    bool add;   // to what `out` holds
    bool int8;  // use the quantized activations
    // What the thread reads after these strips, if known: prefetched as they end.
    const std::uint8_t* next = nullptr;
    Background* background = nullptr;
};

// Ends the process: activations whose scales are coarser than a weight group would give wrong sums.
[[noreturn]] void refuse_coarse_activations(const char* layout);
// The same: an instruction set without kernels for integer scales, or float activations.
[[noreturn]] void refuse_integer_scales(const char* layout);

// Numbers of keys and values, as the configuration names them.
enum class KvFormat { f32, bf16, int8 };

// How int8 keys and values, and what they are multiplied with, are written.
inline constexpr int kByteBias = 128;                   // a byte is a number plus this
inline constexpr int kScaleBytes = kTilePositions * 4;  // one float a position, before a tile's numbers
inline constexpr int kQueryHeader = 8;                  // a query's scale, and kByteBias * the sum of its integers
inline constexpr float kBaseTwo = 1.44269504f;          // log2(e): scores times this are exponents of two

// The largest integer of a quantized query: 32 bits hold its product with any key.
FREEHOLD_INLINE int highest_query(int head_dim) { return head_dim <= 512 ? 16383 : 16383 * 512 / head_dim; }

// Header, high bytes and low bytes of a quantized query: integer = 128 * high + low.
FREEHOLD_INLINE int int8_query_bytes(int head_dim) { return kQueryHeader + 2 * round_up(head_dim, kQuad); }

// Where one request's keys and values of one layer and key/value head lie, in tiles of 16 positions.
//
// float32: keys (head_dim, 16 positions), values (16 positions, value_stride).
// bf16: the same in pairs, as the pairwise products of x86 and Arm want them: keys (head_dim / 2, 16 positions, 2
// elements), values (8, value_stride, 2 positions).
// int8: in quads, for dot products of four bytes: 16 scales, then keys (head_dim / 4, 16 positions, 4 elements); 16
// scales, then values (4, value_stride, 4 positions). Keys and values have scales of their own.
struct KvView {
    std::uint8_t* base;  // of the pool, at this layer
    std::size_t block_bytes;
    const std::int32_t* block_ids;
    int block_size;
    std::size_t keys_at;    // in a block
    std::size_t values_at;  // in a block
    int head_dim;
    int value_stride;  // head_dim rounded up to 16
    KvFormat format;

    FREEHOLD_INLINE std::uint8_t* block(int pos) const {
        return base + block_bytes * static_cast<std::size_t>(block_ids[pos / block_size]);
    }
    FREEHOLD_INLINE std::size_t key_tile_bytes() const {
        switch (format) {
            case KvFormat::f32:
                return static_cast<std::size_t>(kTilePositions * head_dim) * 4;
            case KvFormat::bf16:
                return static_cast<std::size_t>(kTilePositions * round_up(head_dim, 2)) * 2;
            case KvFormat::int8:
                break;
        }
        return static_cast<std::size_t>(kTilePositions * round_up(head_dim, kQuad) + kScaleBytes);
    }
    FREEHOLD_INLINE std::size_t value_tile_bytes() const {
        const auto elements = static_cast<std::size_t>(kTilePositions * value_stride);
        switch (format) {
            case KvFormat::f32:
                return elements * 4;
            case KvFormat::bf16:
                return elements * 2;
            case KvFormat::int8:
                break;
        }
        return elements + kScaleBytes;
    }
    // The tile that a position lies in.
    FREEHOLD_INLINE std::uint8_t* key_tile(int pos) const {
        const int tile = pos % block_size / kTilePositions;
        return block(pos) + keys_at + static_cast<std::size_t>(tile) * key_tile_bytes();
    }
    FREEHOLD_INLINE std::uint8_t* value_tile(int pos) const {
        const int tile = pos % block_size / kTilePositions;
        return block(pos) + values_at + static_cast<std::size_t>(tile) * value_tile_bytes();
    }
};

// Keys and values that the thread reads after those of a call, up to one piece: prefetched meanwhile.
struct KvAhead {
    KvView kv;
    int first_pos, end_pos;  // first_pos is a multiple of 16
};

// Queries of consecutive tokens, all heads that share one key/value head; in one of three forms.
struct AttendCall {
    KvView kv;
    const float* queries;               // token t, head h at t * query_stride + h * head_dim; already scaled
    const std::uint16_t* half_queries;  // the same in bf16, times log2(e); null: compute in float32
    const std::uint8_t* int8_queries;   // for int8 keys: t * int8_stride + h * int8_query_bytes
    std::ptrdiff_t int8_stride;
    int query_stride;
    int num_heads;
    int first_pos;  // of token 0
    int num_tokens;
    int window;  // keys a query sees, itself included; INT_MAX for all
    const KvAhead* ahead = nullptr;
};

// The state of a query: a softmax over the positions so far, not yet normalized: `values` holds the sum of weight *
// value, weights being exp(score - maximum). In floats: maximum, sum, 14 unused, then value_stride values. The state
// over no positions is -infinity and zeros.
inline constexpr int kPartialHeader = 16;
FREEHOLD_INLINE int partial_stride(int value_stride) { return kPartialHeader + value_stride; }

// One head of some tokens: rows of a projection's outputs.
struct HeadRows {
    float* first;  // (count, stride), head_dim of them
    std::ptrdiff_t stride;
    int head_dim;
    int count;

    FREEHOLD_INLINE float* row(int token) const { return first + token * stride; }
    FREEHOLD_INLINE HeadRows from(int token, int how_many) const { return {row(token), stride, head_dim, how_many}; }
};

// What becomes of heads before attention: a bias, a norm, and the rotation of their first 2 * num_pairs elements,
// halves paired, all in float32; then everything times `scale`.
struct HeadTurn {
    const float* bias = nullptr;         // (head_dim,); null: none
    const float* norm_weight = nullptr;  // (head_dim,); null: no norm
    float norm_eps = 0.0f;
    int num_pairs = 0;
    const float* const* angles = nullptr;  // of each row: cosines, then sines
    float scale = 1.0f;
};

struct LogitScan {
    float highest;
    std::int32_t highest_id;  // the lowest id among equals
    bool finite;
};

struct NoiseCall {
    const float* logits;  // readable up to a multiple of 16
    int begin, end;
    float highest;
    float inverse_temperature;
    float best;  // score to reach
    NoiseKey key;
};

struct KernelTable {
    const char* isa;
    bool bf16_dot;  // attention can compute with bf16 queries and weights
    // Layouts with integer scales can be read, with int8 activations.
    bool integer_scales;

    void (*linear)(const LinearCall& call);

    // out = x / sqrt(mean(x^2) + eps) * weight; `count` real elements, rows padded to `padded`.
    void (*rms_norm)(const float* x, const float* weight, int count, int padded, float eps, float* out);

    // Fills `count` inputs of row `row`, from `first` on, in the quantized parts; both are multiples of 32.
    void (*quantize)(const Activations& activations, int row, int first, const float* x, int count);

    // Fills the records of a row, all of whose inputs are quantized. If `integer_scales`.
    void (*fill_records)(const Activations& activations, int row);

    // out = silu(gate) * up.
    void (*silu_mul)(const float* gate, const float* up, int padded, float* out);

    // In place.
    void (*turn)(const HeadRows& heads, const HeadTurn& turn);

    // A head for int8 keys, int8_query_bytes of it: in integers, its scale times log2(e) where `bf16_dot` is true.
    void (*quantize_query)(const float* head, int head_dim, std::uint8_t* out);
    // bf16 of heads times log2(e), (count, out_stride).
    void (*halve_queries)(const HeadRows& heads, std::uint16_t* out, int out_stride);

    // Of consecutive positions within one tile, 16 at most. What lies at others stays untouched: other threads may
    // write there meanwhile.
    void (*store_keys)(const KvView& kv, int first_pos, const HeadRows& keys);
    void (*store_values)(const KvView& kv, int first_pos, const HeadRows& values);

    // Joins what the call's queries see of one piece to their states.
    void (*attend_piece)(const AttendCall& call, int piece, float* states);
    // Joins states over the next piece to the right to `states`. The same bits as `attend_piece` with that piece.
    // `base_two`: those have their maxima to the base of two, as bf16 and int8 queries do where `bf16_dot` is true.
    void (*fold)(bool base_two, float* states, const float* pieces, int num_queries, int value_stride);
    // out = values / sum, head_dim floats.
    void (*finish)(const float* state, int head_dim, float* out);

    LogitScan (*scan)(const float* logits, int count);
    // Sum of SplitMix64 finalizers over (index, bits): the twin of `freehold.sample.digest`.
    std::uint64_t (*digest)(const float* logits, int count);
    // Token ids of [begin, end) that could reach `best`, all of them and few others; returns how many.
    int (*noise_candidates)(const NoiseCall& call, std::int32_t* ids);

    // Of finite logits that are readable up to a multiple of 16. The twins of `freehold.sample.logprobs`, bit for bit.
    // Sum of exp(logit - highest), in sixteen lanes that are folded at the end.
    double (*exp_sum)(const float* logits, int count, float highest);
    // 1 + how many are likelier than `id`: higher, or equal with a lower id.
    int (*rank)(const float* logits, int count, int id);
    // Ids of [begin, end) with logits above a threshold, ascending; `begin` is a multiple of 16. Returns how many.
    int (*above)(const float* logits, int begin, int end, float threshold, std::int32_t* ids);
    // The lowest id among the highest logits of a bit set's members. It has one at least.
    LogitScan (*scan_allowed)(const float* logits, int count, const std::uint32_t* allowed);
};

// The tables' linear layers, each compiled once (kernels/linear.h).
namespace generic {
void linear(const LinearCall& call);
}
namespace avx2 {
void linear(const LinearCall& call);
}
namespace avx512 {
void linear(const LinearCall& call);
}
namespace avx512bf16 {
using avx512::linear;
}

const KernelTable& generic_kernels();
#if defined(__x86_64__)
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512bf16_kernels();
#endif

}  // namespace freehold
