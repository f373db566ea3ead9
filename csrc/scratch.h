// Memory of a step's intermediate results, reserved once for the largest step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "matrix.h"
#include "model.h"

namespace freehold {

// Rows that a thread takes through a layer at a time; what they need on the way stays in its cache.
inline constexpr int kBlockRows = 96;
// Outputs of a linear layer that are used up where they are computed, at a time.
inline constexpr int kChunkStrips = 8;

// The widest of each kind over all layers, padded to whole strips.
struct Widths {
    int hidden = 0;
    int queries = 0;
    int mlp = 0;
    int inputs = 0;        // of the linear layers but the last of an MLP
    int chunk = 0;         // outputs that are used up where they are computed
    int int8_queries = 0;  // bytes of a token's queries for int8 keys
    int query_tile = 0;    // queries of one attention item
    int value_stride = 0;
};

Widths widths_of(const Model& model);

// Heads whose outputs fill whole strips, all of them if no fewer do.
int heads_per_unit(int num_heads, int head_dim);

// Tokens of a row that one attention item covers, so that its queries fill tiles and its state stays in cache.
int tokens_per_item(const AttentionShape& shape);

struct ScratchOptions {
    int max_tokens = 0;
    int num_threads = 1;
    bool int8 = false;            // activations
    bool integer_scales = false;  // of weights
    KvFormat kv_format = KvFormat::bf16;
    bool bf16_dot = false;  // attention reads queries in bf16
};

class Scratch {
  public:
    // What one thread needs for itself.
    struct OfThread {
        Activations input;        // (kBlockRows, inputs): what enters a linear layer; `x` too
        Activations fine;         // the same with fine scales, for layers of which some want them
        Activations inner;        // (kBlockRows, mlp): records alone
        float* first = nullptr;   // (kBlockRows, chunk)
        float* second = nullptr;  // (kBlockRows, chunk)
        float* states = nullptr;  // (query_tile, partial stride)
    };

    Scratch() = default;
    Scratch(const Model& model, const ScratchOptions& options);

    std::size_t num_bytes() const { return region_.size(); }
    std::size_t num_threads() const { return threads_.size(); }
    int max_logit_rows() const { return max_logit_rows_; }
    int logit_stride() const { return logit_stride_; }
    const Widths& widths() const { return widths_; }
    const OfThread& of_thread(int thread) const { return threads_[static_cast<std::size_t>(thread)]; }
    // (tokens, stride): what enters the last linear layer of an MLP.
    Activations inner(int stride, int group) const;
    // A token's query head for int8 keys, and those behind it.
    std::uint8_t* int8_query(const AttentionShape& shape, int token, int head) const {
        const std::ptrdiff_t number = std::ptrdiff_t{token} * shape.num_heads + head;
        return int8_queries + number * int8_query_bytes(shape.head_dim);
    }

    float* hidden = nullptr;  // (tokens, hidden): the residual stream
    // Queries, as attention reads them: one of these.
    float* queries = nullptr;               // (tokens, queries)
    std::uint16_t* half_queries = nullptr;  // (tokens, queries)
    std::uint8_t* int8_queries = nullptr;   // (tokens, heads, int8_query_bytes)
    float* attended = nullptr;              // (tokens, queries)
    float* logits = nullptr;                // (max_logit_rows, logit_stride)
    float* piece_states = nullptr;          // of pieces that threads share out, kPieceFloats long

    static constexpr std::size_t kPieceFloats = std::size_t{4} << 20;

  private:
    Region region_;
    Widths widths_;
    int max_logit_rows_ = 0;
    int logit_stride_ = 0;
    Activations inner_;
    std::vector<OfThread> threads_;
};

}  // namespace freehold
