// A decoder's shape and packed weights. Filled once at start-up, read by every step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "matrix.h"

namespace freehold {

// Cosines and sines of rotary angles, computed with the system's libm in blocks of positions when a position is first
// needed, and never again: kernels only read them.
class RopeTable {
  public:
    RopeTable(std::vector<float> inv_freq, double attention_factor);

    int num_pairs() const { return static_cast<int>(inv_freq_.size()); }
    // Makes positions below `end` available. One thread at a time.
    void extend(int end);
    // Cosines, then sines. They stay where they are.
    const float* angles(int pos) const {
        return blocks_[static_cast<std::size_t>(pos / kBlock)].get() +
               static_cast<std::size_t>(pos % kBlock) * 2 * inv_freq_.size();
    }

  private:
    static constexpr int kBlock = 256;

    std::vector<float> inv_freq_;
    double attention_factor_;
    std::vector<std::unique_ptr<float[]>> blocks_;  // (256, cosines then sines)
};

struct AttentionShape {
    int num_heads = 0;
    int num_kv_heads = 0;
    int head_dim = 0;
    int window = 0;  // keys a query sees; INT_MAX for all
    int rope = 0;    // index of a RopeTable
    float scale = 0.0f;
    bool qk_norm = false;
    bool qkv_bias = false;

    int query_size() const { return num_heads * head_dim; }
    int kv_size() const { return num_kv_heads * head_dim; }
};

struct Layer {
    AttentionShape attention;
    int mlp_size = 0;
    Matrix q, k, v, o, gate, up, down;
    std::vector<float> attn_norm, mlp_norm;     // padded to 32 with zeros
    std::vector<float> q_bias, k_bias, v_bias;  // if qkv_bias
    std::vector<float> q_norm, k_norm;          // (head_dim,), if qk_norm
};

struct Model {
    int vocab_size = 0;
    int hidden_size = 0;
    float norm_eps = 0.0f;
    bool tied_embeddings = false;
    std::vector<RopeTable> ropes;
    std::vector<Layer> layers;
    Matrix embed;
    Matrix head;  // if not tied
    std::vector<float> final_norm;

    std::shared_ptr<const Region> arena;  // holds all packed matrices

    const Matrix& output() const { return tied_embeddings ? embed : head; }
    // Whether a matrix has them.
    bool has_integer_scales() const;
    int padded_hidden() const { return round_up(hidden_size, kStrip); }

    // The place of a slot (named as in freehold.arch.spec). Throws std::invalid_argument for an unknown one.
    Matrix& matrix(const std::string& slot, int layer);
    std::vector<float>& vector(const std::string& slot, int layer);

    // Throws std::invalid_argument if a tensor is missing or has another shape than the model asks for.
    void check() const;
};

}  // namespace freehold
