#include "scratch.h"

#include <algorithm>

namespace freehold {
namespace {

constexpr int kMaxLogitRows = 64;  // more rows would only add memory: the head is read once per 64
constexpr int kQueriesPerItem = 48;

// Hands out 64-byte aligned parts; first run counts, second run places.
class Carver {
  public:
    explicit Carver(std::uint8_t* base) : base_(base) {}
    template <class T>
    T* take(std::size_t count) {
        const std::size_t at = used_;
        used_ += (count * sizeof(T) + 63) / 64 * 64;
        return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at);
    }
    std::size_t used() const { return used_; }

  private:
    std::uint8_t* base_;
    std::size_t used_ = 0;
};

}  // namespace

int tokens_per_item(const AttentionShape& shape) {
    return std::clamp(kQueriesPerItem / (shape.num_heads / shape.num_kv_heads), 1, kTilePositions);
}

Widths widths_of(const Model& model) {
    Widths w;
    w.hidden = model.padded_hidden();
    for (const Layer& layer : model.layers) {
        const AttentionShape& a = layer.attention;
        w.queries = std::max(w.queries, round_up(a.query_size(), kStrip));
        w.keys = std::max(w.keys, round_up(a.kv_size(), kStrip));
        w.mlp = std::max(w.mlp, round_up(layer.mlp_size, kStrip));
        w.query_tile = std::max(w.query_tile, tokens_per_item(a) * (a.num_heads / a.num_kv_heads));
        w.value_stride = std::max(w.value_stride, round_up(a.head_dim, kPanel));
    }
    w.inputs = std::max({w.hidden, w.queries, w.mlp});
    return w;
}

Scratch::Scratch(const Model& model, int max_tokens, int num_threads, bool int8) : widths_(widths_of(model)) {
    const auto tokens = static_cast<std::size_t>(max_tokens);
    max_logit_rows_ = std::min(max_tokens, kMaxLogitRows);
    logit_stride_ = round_up(model.vocab_size, kStrip);
    state_floats_ =
        static_cast<std::size_t>(widths_.query_tile) * static_cast<std::size_t>(partial_stride(widths_.value_stride));
    const auto rows = [&](int width) { return tokens * static_cast<std::size_t>(width); };
    const auto place = [&](Carver& carver) {
        hidden = carver.take<float>(rows(widths_.hidden));
        normed = carver.take<float>(rows(widths_.hidden));
        queries = carver.take<float>(rows(widths_.queries));
        half_queries = carver.take<std::uint16_t>(rows(widths_.queries));
        keys = carver.take<float>(rows(widths_.keys));
        values = carver.take<float>(rows(widths_.keys));
        attended = carver.take<float>(rows(widths_.queries));
        gate = carver.take<float>(rows(widths_.mlp));
        up = carver.take<float>(rows(widths_.mlp));
        logits =
            carver.take<float>(static_cast<std::size_t>(max_logit_rows_) * static_cast<std::size_t>(logit_stride_));
        states_ = carver.take<float>(state_floats_ * static_cast<std::size_t>(num_threads));
        piece_states = carver.take<float>(kPieceFloats);
        if (int8) {
            const std::size_t inputs = rows(widths_.inputs);
            quantized_.q = carver.take<std::int8_t>(inputs);
            quantized_.scale = carver.take<float>(inputs / kFineGroup);
            quantized_.sums = carver.take<std::int32_t>(inputs / kFineGroup);
            quantized_.scaled_sums = carver.take<float>(inputs / kFineGroup);
            quantized_.scaled_sums32 = carver.take<float>(inputs / kFineGroup / 2);
        }
    };
    Carver counter(nullptr);
    place(counter);
    region_ = Region(counter.used(), true);
    Carver carver(region_.data());
    place(carver);
}

Activations Scratch::activations(float* x, int stride, int group) const {
    Activations a = quantized_;
    a.group = group;
    a.x = x;
    a.stride = stride;
    return a;
}

float* Scratch::states(int thread) const { return states_ + state_floats_ * static_cast<std::size_t>(thread); }

}  // namespace freehold
