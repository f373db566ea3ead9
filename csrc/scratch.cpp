#include "scratch.h"

#include <algorithm>
#include <numeric>

namespace freehold {
namespace {

constexpr int kMaxLogitRows = 64;  // more rows would only add memory: the head is read once per 64
static_assert(kMaxLogitRows <= kBlockRows);
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

std::size_t area(int rows, int width) { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(width); }

void take_quantized(Carver& carver, std::size_t inputs, Activations& a) {
    a.q = carver.take<std::int8_t>(inputs);
    a.scale = carver.take<float>(inputs / kFineGroup);
    a.sums = carver.take<std::int32_t>(inputs / kFineGroup);
    a.scaled_sums = carver.take<float>(inputs / kFineGroup);
    a.scaled_sums32 = carver.take<float>(inputs / kFineGroup / 2);
}

// Records of `rows` rows, whichever group they have.
void take_records(Carver& carver, int rows, int width, Activations& a) {
    const auto stride = std::max(records_stride(width, kFineGroup), records_stride(width, 2 * kFineGroup));
    a.records = carver.take<std::uint8_t>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(stride));
    a.tops = carver.take<float>(static_cast<std::size_t>(rows));
}

}  // namespace

int heads_per_unit(int num_heads, int head_dim) {
    const int heads = kStrip / std::gcd(kStrip, head_dim);
    return num_heads % heads == 0 ? heads : num_heads;
}

int tokens_per_item(const AttentionShape& shape) {
    return std::clamp(kQueriesPerItem / (shape.num_heads / shape.num_kv_heads), 1, kTilePositions);
}

Widths widths_of(const Model& model) {
    Widths w;
    w.hidden = model.padded_hidden();
    w.chunk = kChunkStrips * kStrip;
    for (const Layer& layer : model.layers) {
        const AttentionShape& a = layer.attention;
        w.queries = std::max(w.queries, round_up(a.query_size(), kStrip));
        w.int8_queries = std::max(w.int8_queries, a.num_heads * int8_query_bytes(a.head_dim));
        w.mlp = std::max(w.mlp, round_up(layer.mlp_size, kStrip));
        w.query_tile = std::max(w.query_tile, tokens_per_item(a) * (a.num_heads / a.num_kv_heads));
        w.value_stride = std::max(w.value_stride, round_up(a.head_dim, kPanel));
        for (const int heads : {a.num_heads, a.num_kv_heads}) {
            w.chunk = std::max(w.chunk, round_up(heads_per_unit(heads, a.head_dim) * a.head_dim, kStrip));
        }
    }
    w.inputs = std::max(w.hidden, w.queries);
    return w;
}

Scratch::Scratch(const Model& model, const ScratchOptions& options)
    : widths_(widths_of(model)), threads_(static_cast<std::size_t>(options.num_threads)) {
    max_logit_rows_ = std::min(options.max_tokens, kMaxLogitRows);
    // An odd number of lines, so that a column of rows does not fall into one set of a cache.
    logit_stride_ = (round_up(model.vocab_size, kStrip) / kPanel | 1) * kPanel;
    const auto rows = [&](int width) { return area(options.max_tokens, width); };
    const auto place = [&](Carver& carver) {
        hidden = carver.take<float>(rows(widths_.hidden));
        if (options.kv_format == KvFormat::int8) {
            int8_queries = carver.take<std::uint8_t>(rows(widths_.int8_queries));
        } else if (options.bf16_dot) {
            half_queries = carver.take<std::uint16_t>(rows(widths_.queries));
        } else {
            queries = carver.take<float>(rows(widths_.queries));
        }
        attended = carver.take<float>(rows(widths_.queries));
        inner_.x = carver.take<float>(rows(widths_.mlp));
        if (options.int8) take_quantized(carver, rows(widths_.mlp), inner_);
        logits = carver.take<float>(area(max_logit_rows_, logit_stride_));
        piece_states = carver.take<float>(kPieceFloats);
        for (OfThread& thread : threads_) {
            thread.input.x = carver.take<float>(area(kBlockRows, widths_.inputs));
            if (options.int8) {
                take_quantized(carver, area(kBlockRows, widths_.inputs), thread.input);
                take_quantized(carver, area(kBlockRows, widths_.inputs), thread.fine);
            }
            if (options.integer_scales) {
                take_records(carver, kBlockRows, widths_.inputs, thread.input);
                take_records(carver, kBlockRows, widths_.inputs, thread.fine);
                take_records(carver, kBlockRows, widths_.mlp, thread.inner);
            }
            thread.first = carver.take<float>(area(kBlockRows, widths_.chunk));
            thread.second = carver.take<float>(area(kBlockRows, widths_.chunk));
            thread.states = carver.take<float>(area(widths_.query_tile, partial_stride(widths_.value_stride)));
        }
    };
    Carver counter(nullptr);
    place(counter);
    region_ = Region(counter.used(), true);
    Carver carver(region_.data());
    place(carver);
}

Activations Scratch::inner(int stride, int group) const {
    Activations a = inner_;
    a.stride = stride;
    a.group = group;
    return a;
}

}  // namespace freehold
