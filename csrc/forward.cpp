#include "forward.h"

#include <unistd.h>

#include <algorithm>

namespace freehold {
namespace {

constexpr int kSharesPerThread = 4;  // of a matrix: what one thread does not get to, others can take
constexpr int kFewestStrips = 2;     // in such a share

constexpr std::size_t kMostFetchedBytes = std::size_t{5} << 19;

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

// What may be fetched of a block's next layer: a thread's share of a quarter of the last cache.
std::size_t most_fetched_bytes(int num_threads) {
    long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    constexpr long kUnknown = 8L << 20;
    return std::min(kMostFetchedBytes, static_cast<std::size_t>((cache > 0 ? cache : kUnknown) / 4 / num_threads));
}

}  // namespace

Forward::Forward(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team,
                 bool int8, bool bf16_dot)
    : model_(model),
      kv_(kv),
      team_(team),
      ops_(model, kv, scratch, kernels, int8, bf16_dot),
      attention_(model, kv, scratch, kernels, team, bf16_dot),
      cost_(model),
      most_fetched_bytes_(most_fetched_bytes(team.size())) {}

bool Forward::takes_blocks(int num_rows) const {
    return num_rows >= kFewestBlockRows * team_.size() || num_rows > kBlockRows;
}

TokenSpan Forward::kept_block(int number) const {
    const auto border = [&](int n) {
        return static_cast<int>(kept_.size() * index_of(n) / index_of(num_kept_blocks_));
    };
    return {border(number), border(number + 1)};
}

void Forward::prepare(const Step& step, const std::vector<int>& kept, Profile* profile) {
    ops_.prepare(step, profile);
    step_ = &step;
    num_rows_ = static_cast<int>(step.token_ids.size());
    kept_ = kept;
    blocks_.clear();
    if (takes_blocks(num_rows_)) cut_rows(step, cost_, team_.size(), blocks_);
    if (num_rows_ <= kBlockRows && is_lopsided(blocks_, team_.size())) blocks_.clear();
    attention_.prepare(step, blocks_, kept);
    const auto num_layers = static_cast<int>(model_.layers.size()), num_kept = static_cast<int>(kept.size());
    const auto num_blocks = static_cast<int>(blocks_.size());
    chains_.reset(num_blocks, num_layers + (keeps_all() ? 1 : 0));
    for (int block = 0; block < num_blocks; ++block) {
        if (blocks_[index_of(block)].alone) chains_.set_alone(block);
    }
    const int most = kBlockRows * team_.size();
    num_kept_blocks_ = takes_blocks(num_kept) ? (num_kept + most - 1) / most * team_.size() : 0;
}

void Forward::layers(int thread) {
    const auto last = static_cast<int>(model_.layers.size()) - 1;
    if (!blocks_.empty()) {
        team_.for_each_stage(
            chains_, [&](int block, int stage) { return stage_is_ready(block, stage); },
            [&](int block, int stage) { run_stage(thread, block, stage); });
        if (keeps_all()) return;
    } else {
        team_.for_each(num_rows_, [&](int token) { ops_.embed(thread, token); });
        for (int layer = 0; layer < last; ++layer) {
            enter_by_outputs(thread, layer);
            attention_.run(thread, layer, ops_.profile());
            leave_by_outputs(thread, layer, all());
        }
        enter_by_outputs(thread, last);
    }
    if (!kept_.empty()) last_layer(thread);
}

bool Forward::stage_is_ready(int block, int stage) const {
    for (int other = blocks_[index_of(block)].first_needed; other < block; ++other) {
        if (chains_.num_done(other) < stage) return false;
    }
    return true;
}

void Forward::run_stage(int thread, int block, int stage) {
    const TokenSpan tokens = blocks_[index_of(block)].tokens;
    const bool ends = stage == static_cast<int>(model_.layers.size());
    if (stage > 0) attention_.run_block(thread, stage - 1, block, ops_.profile());
    KvFetcher fetcher;
    if (!ends) {
        const AttentionShape& next = model_.layers[index_of(stage)].attention;
        fetcher = KvFetcher(kv_, next, stage, *step_, tokens, most_fetched_bytes_);
    }
    ops_.set_background(thread, &fetcher);
    if (stage == 0) {
        for (int token = tokens.begin; token < tokens.end; ++token) ops_.embed(thread, token);
    } else {
        leave_by_rows(thread, stage - 1, tokens);
    }
    if (!ends) enter_by_rows(thread, stage, tokens);
    ops_.set_background(thread, nullptr);
}

// From its keys and values on.
void Forward::last_layer(int thread) {
    const auto last = static_cast<int>(model_.layers.size()) - 1;
    const auto num_kept = static_cast<int>(kept_.size());
    attention_.run(thread, last, ops_.profile());
    if (num_kept < num_rows_) {
        team_.for_each(1, [&](int) { ops_.keep(kept_); });
    }
    if (num_kept_blocks_ > 0) {
        team_.for_each(num_kept_blocks_, [&](int number) { leave_by_rows(thread, last, kept_block(number)); });
    } else {
        leave_by_outputs(thread, last, {0, num_kept});
    }
}

void Forward::enter_by_rows(int thread, int layer, TokenSpan tokens) {
    const HeadInputs inputs = ops_.normed_for_heads(thread, layer, tokens);
    const std::vector<HeadUnit>& units = ops_.units(layer);
    for (std::size_t i = 0; i < units.size(); ++i) {
        const std::uint8_t* next =
            i + 1 < units.size() ? units[i + 1].weights() : model_.layers[static_cast<std::size_t>(layer)].o.data;
        ops_.heads(thread, layer, units[i], inputs, tokens, next);
    }
}

void Forward::leave_by_rows(int thread, int layer, TokenSpan tokens) {
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
    ops_.add_mlp(thread, layer, ops_.gated(thread, layer, tokens), tokens, 0, l.down.num_strips(),
                 last ? model_.output().data : ops_.units(layer + 1).front().weights());
}

void Forward::enter_by_outputs(int thread, int layer) {
    const std::vector<HeadUnit>& units = ops_.units(layer);
    const auto num_units = static_cast<int>(units.size());
    const int own_end = team_.run_begin(thread + 1, num_units);
    HeadInputs inputs;  // of this thread, made when it comes to its first unit
    team_.for_each_in_runs(thread, num_units, [&](int number) {
        if (inputs.coarse.x == nullptr) inputs = ops_.normed_for_heads(thread, layer, all());
        const HeadUnit& unit = units[static_cast<std::size_t>(number)];
        const std::uint8_t* next = number + 1 < own_end
                                       ? units[static_cast<std::size_t>(number) + 1].weights()
                                       : first_strips(thread, model_.layers[static_cast<std::size_t>(layer)].o);
        ops_.heads(thread, layer, unit, inputs, all(), next);
    });
}

void Forward::leave_by_outputs(int thread, int layer, TokenSpan tokens) {
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    Activations input;
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
    const bool last = layer + 1 == static_cast<int>(model_.layers.size());
    const std::uint8_t* after = last ? first_strips(thread, model_.output()) : first_heads(thread, layer + 1);
    input = {};
    share_strips(thread, l.down, l.down.num_strips(), after, [&](int begin, int end, const std::uint8_t* next) {
        if (input.stride == 0) input = ops_.gated(thread, layer, tokens);
        ops_.add_mlp(thread, layer, input, tokens, begin, end, next);
    });
}

void Forward::logits(int thread, int begin, int count) {
    const Matrix& output = model_.output();
    Activations input;
    share_strips(thread, output, output.num_strips(), first_heads(thread, 0),
                 [&](int strip_begin, int strip_end, const std::uint8_t* next) {
                     if (input.x == nullptr) input = ops_.normed_for_logits(thread, {begin, begin + count});
                     ops_.logits(thread, input, count, strip_begin, strip_end, next);
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
