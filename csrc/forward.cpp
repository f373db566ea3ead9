#include "forward.h"

#include <algorithm>

namespace freehold {
namespace {

constexpr int kFewestBlockRows = 16;  // below, a block's arithmetic no longer hides the reading of its weights
constexpr int kSharesPerThread = 4;   // of a matrix: what one thread does not get to, others can take
constexpr int kFewestStrips = 2;      // in such a share

}  // namespace

Forward::Forward(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team,
                 bool int8, bool bf16_dot)
    : model_(model),
      team_(team),
      ops_(model, kv, scratch, kernels, int8, bf16_dot),
      attention_(model, kv, scratch, kernels, team, bf16_dot) {}

void Forward::prepare(const Step& step, Profile* profile) {
    ops_.prepare(step, profile);
    attention_.prepare(step);
    const int num_tokens = ops_.num_tokens(), num_threads = team_.size();
    const bool few = num_tokens < kFewestBlockRows * num_threads && num_tokens <= kBlockRows;
    const int rounds = (num_tokens + kBlockRows * num_threads - 1) / (kBlockRows * num_threads);
    num_blocks_ = few ? 0 : rounds * num_threads;
}

void Forward::layers(int thread) {
    if (num_blocks_ > 0) {
        layers_by_rows(thread);
    } else {
        layers_by_outputs(thread);
    }
}

void Forward::layers_by_rows(int thread) {
    const auto num_layers = static_cast<int>(model_.layers.size());
    const auto block = [&](int number) {
        const auto border = [&](int n) { return static_cast<int>(std::int64_t{ops_.num_tokens()} * n / num_blocks_); };
        return TokenSpan{border(number), border(number + 1)};
    };
    team_.for_each(num_blocks_, [&](int number) {
        const TokenSpan tokens = block(number);
        for (int token = tokens.begin; token < tokens.end; ++token) ops_.embed(thread, token);
        rows_into_attention(thread, 0, tokens);
    });
    for (int layer = 0; layer < num_layers; ++layer) {
        attention_.run(thread, layer, ops_.profile());
        team_.for_each(num_blocks_, [&](int number) {
            const TokenSpan tokens = block(number);
            rows_out_of_attention(thread, layer, tokens);
            if (layer + 1 < num_layers) rows_into_attention(thread, layer + 1, tokens);
        });
    }
}

void Forward::rows_into_attention(int thread, int layer, TokenSpan tokens) {
    const Activations input = ops_.normed_for_heads(thread, layer, tokens);
    const std::vector<HeadUnit>& units = ops_.units(layer);
    for (std::size_t i = 0; i < units.size(); ++i) {
        const std::uint8_t* next =
            i + 1 < units.size() ? units[i + 1].weights() : model_.layers[static_cast<std::size_t>(layer)].o.data;
        ops_.heads(thread, layer, units[i], input, tokens, next);
    }
}

void Forward::rows_out_of_attention(int thread, int layer, TokenSpan tokens) {
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    const Activations attended = ops_.attended(thread, layer, tokens);
    ops_.add_attended(thread, layer, attended, tokens, 0, l.o.num_strips(), l.gate.data);
    const Activations normed = ops_.normed_for_mlp(thread, layer, tokens);
    const int num_strips = l.gate.num_strips();
    for (int begin = 0; begin < num_strips; begin += kChunkStrips) {
        const int end = std::min(begin + kChunkStrips, num_strips);
        const std::uint8_t* next =
            end < num_strips ? l.gate.data + l.gate.strip_bytes() * static_cast<std::size_t>(end) : l.down.data;
        ops_.gate_up(thread, layer, normed, tokens, begin, end, next);
    }
    const bool last = layer + 1 == static_cast<int>(model_.layers.size());
    ops_.add_mlp(thread, layer, tokens, 0, l.down.num_strips(),
                 last ? model_.output().data : ops_.units(layer + 1).front().weights());
}

void Forward::layers_by_outputs(int thread) {
    const TokenSpan tokens{0, ops_.num_tokens()};
    const auto num_layers = static_cast<int>(model_.layers.size());
    team_.for_each(tokens.size(), [&](int token) { ops_.embed(thread, token); });
    for (int layer = 0; layer < num_layers; ++layer) {
        const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
        heads_by_units(thread, layer);
        attention_.run(thread, layer, ops_.profile());
        Activations input;  // of this thread, made when it comes to its first share
        share_strips(thread, l.o, l.o.num_strips(), first_strips(thread, l.gate),
                     [&](int begin, int end, const std::uint8_t* next) {
                         if (input.x == nullptr) input = ops_.attended(thread, layer, tokens);
                         ops_.add_attended(thread, layer, input, tokens, begin, end, next);
                     });
        input = {};
        share_strips(thread, l.gate, kChunkStrips, first_strips(thread, l.down),
                     [&](int begin, int end, const std::uint8_t* next) {
                         if (input.x == nullptr) input = ops_.normed_for_mlp(thread, layer, tokens);
                         ops_.gate_up(thread, layer, input, tokens, begin, end, next);
                     });
        const std::uint8_t* after =
            layer + 1 < num_layers ? first_heads(thread, layer + 1) : first_strips(thread, model_.output());
        share_strips(thread, l.down, l.down.num_strips(), after, [&](int begin, int end, const std::uint8_t* next) {
            ops_.add_mlp(thread, layer, tokens, begin, end, next);
        });
    }
}

void Forward::heads_by_units(int thread, int layer) {
    const TokenSpan tokens{0, ops_.num_tokens()};
    const std::vector<HeadUnit>& units = ops_.units(layer);
    const auto num_units = static_cast<int>(units.size());
    const int own_end = team_.run_begin(thread + 1, num_units);
    Activations input;
    team_.for_each_in_runs(thread, num_units, [&](int number) {
        if (input.x == nullptr) input = ops_.normed_for_heads(thread, layer, tokens);
        const std::uint8_t* next = number + 1 < own_end
                                       ? units[static_cast<std::size_t>(number) + 1].weights()
                                       : first_strips(thread, model_.layers[static_cast<std::size_t>(layer)].o);
        ops_.heads(thread, layer, units[static_cast<std::size_t>(number)], input, tokens, next);
    });
}

void Forward::logits(int thread, const int* tokens, int count) {
    const Matrix& output = model_.output();
    Activations input;
    share_strips(thread, output, output.num_strips(), first_heads(thread, 0),
                 [&](int begin, int end, const std::uint8_t* next) {
                     if (input.x == nullptr) input = ops_.normed_for_logits(thread, tokens, count);
                     ops_.logits(thread, input, count, begin, end, next);
                 });
}

template <class Part>
void Forward::share_strips(int thread, const Matrix& matrix, int most_each, const std::uint8_t* after, Part&& part) {
    const int num_strips = matrix.num_strips(), num_threads = team_.size();
    const int each = (num_strips + num_threads - 1) / num_threads;  // of a thread
    const int fewest = (each + most_each - 1) / most_each;
    const int shares = num_threads * std::max(fewest, std::min(kSharesPerThread, std::max(1, each / kFewestStrips)));
    const int own_end = team_.run_begin(thread + 1, shares);
    const auto border = [&](int share) { return static_cast<int>(std::int64_t{num_strips} * share / shares); };
    team_.for_each_in_runs(thread, shares, [&](int share) {
        const int begin = border(share), end = border(share + 1);
        if (begin == end) return;
        part(begin, end,
             share + 1 < own_end ? matrix.data + matrix.strip_bytes() * static_cast<std::size_t>(end) : after);
    });
}

const std::uint8_t* Forward::first_heads(int thread, int layer) const {
    const std::vector<HeadUnit>& units = ops_.units(layer);
    const int first = team_.run_begin(thread, static_cast<int>(units.size()));
    return units[static_cast<std::size_t>(std::min(first, static_cast<int>(units.size()) - 1))].weights();
}

const std::uint8_t* Forward::first_strips(int thread, const Matrix& matrix) const {
    const int first = team_.run_begin(thread, matrix.num_strips());
    return matrix.data + matrix.strip_bytes() * static_cast<std::size_t>(first);
}

}  // namespace freehold
