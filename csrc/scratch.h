// Memory of a step's intermediate results, reserved once for the largest step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"
#include "matrix.h"
#include "model.h"

namespace freehold {

// The widest of each kind over all layers, padded to whole strips.
struct Widths {
    int hidden = 0;
    int queries = 0;
    int keys = 0;  // of keys, and of values
    int mlp = 0;
    int inputs = 0;      // of any linear layer
    int query_tile = 0;  // queries of one attention item
    int value_stride = 0;
};

Widths widths_of(const Model& model);

// Tokens of a row that one attention item covers, so that its queries fill tiles and its state stays in cache.
int tokens_per_item(const AttentionShape& shape);

class Scratch {
  public:
    Scratch() = default;
    Scratch(const Model& model, int max_tokens, int num_threads, bool int8);

    std::size_t num_bytes() const { return region_.size(); }
    int max_logit_rows() const { return max_logit_rows_; }
    int logit_stride() const { return logit_stride_; }
    // Quantized parts for rows whose float part lies at `x`.
    Activations activations(float* x, int stride, int group) const;

    const Widths& widths() const { return widths_; }
    float* hidden = nullptr;                // (tokens, hidden): the residual stream
    float* normed = nullptr;                // (tokens, hidden)
    float* queries = nullptr;               // (tokens, queries)
    float* keys = nullptr;                  // (tokens, keys)
    float* values = nullptr;                // (tokens, keys)
    float* attended = nullptr;              // (tokens, queries)
    float* gate = nullptr;                  // (tokens, mlp)
    float* up = nullptr;                    // (tokens, mlp)
    float* logits = nullptr;                // (max_logit_rows, logit_stride)
    std::uint16_t* half_queries = nullptr;  // (tokens, queries): for attention in bf16
    float* states(int thread) const;        // (query_tile, partial stride)
    float* piece_states = nullptr;          // of pieces that threads share out, kPieceFloats long

    static constexpr std::size_t kPieceFloats = std::size_t{4} << 20;

  private:
    Region region_;
    Widths widths_;
    int max_logit_rows_ = 0;
    int logit_stride_ = 0;
    std::size_t state_floats_ = 0;  // of one thread
    float* states_ = nullptr;
    Activations quantized_;
};

}  // namespace freehold
