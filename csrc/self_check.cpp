// Stand-alone check without Python: kernels against slow twins, then whole steps of a tiny random model, on every
// instruction set of this processor. Meant for sanitizers and for other architectures under an emulator.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "builder.h"
#include "dispatch.h"
#include "kv_fetcher.h"
#include "numeric.h"
#include "row_blocks.h"
#include "threads/team.h"

namespace freehold {
namespace {

constexpr int kHidden = 96;
constexpr int kHeads = 3;
constexpr int kHeadDim = 32;
constexpr int kMlp = 160;
constexpr int kVocab = 131;
constexpr int kLayers = 2;
constexpr int kBlockSize = 16;
constexpr int kPromptLength = 150;

[[noreturn]] void fail(const std::string& what) {
    std::printf("FAILED: %s\n", what.c_str());
    std::exit(1);
}

// Byte offsets of the float16 numbers in a block.
std::vector<int> halves_of(SourceType type) {
    switch (type) {
        case SourceType::Q4_1:
        case SourceType::Q5_1:
        case SourceType::Q4_K:
        case SourceType::Q5_K:
            return {0, 2};
        case SourceType::Q2_K:
            return {80, 82};
        case SourceType::Q3_K:
            return {108};
        case SourceType::Q6_K:
            return {208};
        default:
            return {0};
    }
}

std::vector<std::uint8_t> random_weights(SourceType type, int num_outputs, int num_inputs, unsigned seed) {
    std::mt19937 random(seed);
    const Source& source = source_of(type);
    const auto blocks = static_cast<std::size_t>(num_outputs * num_inputs / source.block_elements);
    std::vector<std::uint8_t> raw(blocks * static_cast<std::size_t>(source.block_bytes));
    if (type == SourceType::F32) {
        std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
        for (std::size_t i = 0; i < blocks; ++i) {
            const float value = uniform(random);
            std::memcpy(raw.data() + i * sizeof value, &value, sizeof value);
        }
        return raw;
    }
    for (std::uint8_t& byte : raw) byte = static_cast<std::uint8_t>(random());
    // Scales: small ordinary halves of either sign.
    for (std::size_t i = 0; i < blocks; ++i) {
        for (const int offset : halves_of(type)) {
            const auto half = static_cast<std::uint16_t>(0x1c00 | (random() & 0x83ff));
            std::memcpy(raw.data() + i * static_cast<std::size_t>(source.block_bytes) + offset, &half, sizeof half);
        }
    }
    return raw;
}

// How weights, activations, keys and values are stored.
struct Form {
    SourceType type;
    bool int8;
    KvFormat kv_format;
    bool integer_scales = false;
};

std::unique_ptr<Device> open_device(const KernelTable& kernels, const Form& form, int num_threads) {
    auto model = std::make_unique<Model>();
    model->vocab_size = kVocab;
    model->hidden_size = kHidden;
    model->norm_eps = 1e-5f;
    model->tied_embeddings = true;
    model->ropes.emplace_back(std::vector<float>(kHeadDim / 2, 0.37f), 1.0);
    for (int i = 0; i < kLayers; ++i) {
        Layer layer;
        layer.attention = {.num_heads = kHeads,
                           .num_kv_heads = 1,
                           .head_dim = kHeadDim,
                           .window = i == 0 ? 70 : 1 << 30,
                           .rope = 0,
                           .scale = 0.2f,
                           .qk_norm = false,
                           .qkv_bias = false};
        layer.mlp_size = kMlp;
        model->layers.push_back(layer);
    }
    Builder builder(std::move(model), std::size_t{4} << 20, num_threads, form.integer_scales);
    unsigned seed = 1;
    std::deque<std::vector<std::uint8_t>> files;
    const auto matrix = [&](const char* slot, int layer, int outputs, int inputs) {
        const std::vector<std::uint8_t>& raw = files.emplace_back(random_weights(form.type, outputs, inputs, seed++));
        builder.add_matrix(slot, layer, form.type, outputs, inputs, RowsInMemory{raw.data()}, raw.size());
    };
    const std::vector<float> ones(kHidden, 1.0f);
    matrix("embed", 0, kVocab, kHidden);
    builder.set_vector("final_norm", 0, ones.data(), ones.size());
    for (int i = 0; i < kLayers; ++i) {
        matrix("q", i, kHeads * kHeadDim, kHidden);
        matrix("k", i, kHeadDim, kHidden);
        matrix("v", i, kHeadDim, kHidden);
        matrix("o", i, kHidden, kHeads * kHeadDim);
        matrix("gate", i, kMlp, kHidden);
        matrix("up", i, kMlp, kHidden);
        matrix("down", i, kHidden, kMlp);
        builder.set_vector("attn_norm", i, ones.data(), ones.size());
        builder.set_vector("mlp_norm", i, ones.data(), ones.size());
    }
    if (builder.pack()) fail("memory can't be read");
    return builder.open(kernels, {.num_blocks = 32,
                                  .block_size = kBlockSize,
                                  .max_rows = 4,
                                  .max_tokens = kPromptLength + 8,
                                  .num_threads = num_threads,
                                  .kv_format = form.kv_format,
                                  .int8 = form.int8});
}

StepRow row_of(Step& step, int start_pos, const std::vector<std::int32_t>& ids, int first_block) {
    StepRow row;
    row.start_pos = start_pos;
    row.first_token = static_cast<int>(step.token_ids.size());
    row.num_tokens = static_cast<int>(ids.size());
    row.first_block = static_cast<int>(step.block_ids.size());
    row.num_blocks = (kPromptLength + 8 + kBlockSize - 1) / kBlockSize;
    row.want_logits = true;
    step.token_ids.insert(step.token_ids.end(), ids.begin(), ids.end());
    for (int i = 0; i < row.num_blocks; ++i) step.block_ids.push_back(first_block + i);
    return row;
}

// A row that makes use of all there is: penalties, biases, held back stop ids, log probabilities, scores, masks.
StepRow demanding_row(Step& step) {
    StepRow row = row_of(step, 0, {5, 6, 7, 6}, 16);
    row.want_logits = false;
    row.num_sampled = 2;
    row.want_digests = true;
    row.deferred = true;
    row.num_logprobs = 3;
    row.num_scored = 3;
    row.num_scored_top = kVocab;
    step.scored_ids = {6, 7, 6};
    row.rules.temperature = 0.8;
    row.rules.top_p = 0.9;
    row.rules.min_p = 0.01;
    row.rules.top_k = 40;
    row.rules.seed = 3;
    row.rules.num_prompt = 3;
    row.rules.min_end_pos = 6;
    row.rules.stop_ids = {1, kVocab - 1, kVocab + 7};
    row.rules.presence_penalty = 0.5;
    row.rules.frequency_penalty = -0.25;
    row.rules.repetition_penalty = 1.3;
    row.rules.bias_ids = {0, kVocab - 1};
    row.rules.biases = {-100.0, 100.0};
    return row;
}

// It is the same in every step, and so must be what comes out.
void check_same(const RowOutput& row, std::optional<RowOutput>& first) {
    if (!first) first = row;
    bool same = row.token_ids == first->token_ids && row.digests == first->digests;
    for (const auto part : {&RowOutput::logprobs, &RowOutput::scored}) {
        same = same && (row.*part).size() == ((*first).*part).size();
        for (std::size_t i = 0; same && i < (row.*part).size(); ++i) {
            const TokenLogprobs& one = (row.*part)[i];
            const TokenLogprobs& other = ((*first).*part)[i];
            same = one.logprob == other.logprob && one.rank == other.rank && one.top == other.top;
        }
    }
    if (!same || row.token_ids.empty() || row.scored.size() != 3) fail("a neighbour's sampling changed");
}

// Logits after every position of a fixed prompt, computed in chunks, with a neighbour in every step if asked for.
std::vector<float> forced(Device& device, int chunk_size, bool neighbour) {
    std::vector<float> logits;
    std::int64_t step_id = 0;
    std::optional<RowOutput> first;
    for (int start = 0; start < kPromptLength; start += chunk_size) {
        std::vector<std::int32_t> ids;
        for (int pos = start; pos < std::min(start + chunk_size, kPromptLength); ++pos)
            ids.push_back(pos * 37 % kVocab);
        Step step;
        step.id = step_id++;
        if (neighbour) step.rows.push_back(demanding_row(step));
        step.rows.push_back(row_of(step, start, ids, 0));
        const std::size_t index = step.rows.size() - 1;
        const std::int64_t id = step.id;
        device.submit(std::move(step));
        if (neighbour) device.sample(id, {{0, std::vector<std::uint32_t>(2 * ((kVocab + 31) / 32), 0xfffffff7u)}});
        const StepOutput output = device.collect(id);
        if (neighbour) check_same(output.rows[0], first);
        const RowOutput& row = output.rows[index];
        if (!row.finite) fail("a logit is not finite");
        logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    }
    return logits;
}

void check_steps(const std::string& isa, const Form& form) {
    const KernelTable& kernels = choose_kernels(isa);
    const char* type = source_of(form.type).name;
    const std::vector<float> whole = forced(*open_device(kernels, form, 1), kPromptLength, false);
    const struct {
        int num_threads, chunk_size;
        bool neighbour;
    } ways[] = {{1, 1, true}, {2, 7, true}, {3, kPromptLength, false}, {2, 64, false}, {2, 45, true}};
    for (const auto& way : ways) {
        const auto device = open_device(kernels, form, way.num_threads);
        const std::vector<float> found = forced(*device, way.chunk_size, way.neighbour);
        if (found.size() != whole.size() ||
            std::memcmp(found.data(), whole.data(), whole.size() * sizeof(float)) != 0) {
            fail(isa + " " + type + ": threads, chunks or neighbours changed logits");
        }
    }
    std::printf("%s %s %s%s%s: steps agree\n", isa.c_str(), type, form.int8 ? "int8" : "float",
                form.integer_scales ? ", integer scales" : "",
                form.kv_format == KvFormat::int8 ? ", int8 keys and values" : "");
}

void check_linear(const std::string& isa, SourceType type) {
    constexpr int kRows = 13;
    constexpr int kOutputs = 70;
    constexpr int kInputs = 512;
    const KernelTable& kernels = choose_kernels(isa);
    Team team(2);
    const std::vector<std::uint8_t> raw = random_weights(type, kOutputs, kInputs, 9);
    Matrix m = packed_shape(type, kOutputs, kInputs);
    const Region region(m.num_bytes(), false);
    pack(m, type, raw.data(), region.data(), team);
    std::vector<float> x(kRows * kInputs);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7919 % 201) - 100) / 50;
    Activations input;
    input.x = x.data();
    input.stride = kInputs;
    std::vector<float> out(static_cast<std::size_t>(kRows * m.padded_outputs()));
    kernels.linear({m.data, m.strip_bytes(), m.layout, kInputs, 0, m.num_strips(), &input, 0, kRows, out.data(),
                    m.padded_outputs(), false, false});
    std::vector<float> weights(kInputs);
    for (int n = 0; n < kOutputs; ++n) {
        unpack_row(m, n, weights.data());
        for (int r = 0; r < kRows; ++r) {
            double expected = 0;
            double magnitude = 0;
            for (int k = 0; k < kInputs; ++k) {
                const double product = static_cast<double>(weights[static_cast<std::size_t>(k)]) *
                                       static_cast<double>(x[static_cast<std::size_t>(r * kInputs + k)]);
                expected += product;
                magnitude += std::fabs(product);
            }
            const double found = out[static_cast<std::size_t>(r * m.padded_outputs() + n)];
            if (std::fabs(found - expected) > magnitude * 1e-5) fail(isa + " linear " + source_of(type).name);
        }
    }
}

// Chains that need others before them, and some that are alone, on up to 5 threads: each stage is worked on once, in
// its turn, after what it needs.
void check_chains() {
    constexpr int kStages = 3;
    std::mt19937 random(2);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int num_threads = 1; num_threads <= 5; ++num_threads) {
        Team team(num_threads);
        Chains chains;
        for (int turn = 0; turn < 1000; ++turn) {
            const int num_chains = 1 + below(7);
            chains.reset(num_chains, kStages);
            std::vector<int> first_needed;
            for (int chain = 0; chain < num_chains; ++chain) {
                const bool joins = chain > 0 && below(2) == 0;
                first_needed.push_back(joins ? first_needed.back() : chain);
            }
            for (int chain = 0; chain < num_chains; ++chain) {
                const auto next = static_cast<std::size_t>(chain) + 1;
                const bool needed = chain + 1 < num_chains && first_needed[next] <= chain;
                if (first_needed[next - 1] == chain && !needed) chains.set_alone(chain);
            }
            const auto is_ready = [&](int chain, int stage) {
                for (int other = first_needed[static_cast<std::size_t>(chain)]; other < chain; ++other) {
                    if (chains.num_done(other) < stage) return false;
                }
                return true;
            };
            // What each stage leaves: times that it was worked on.
            std::vector<std::array<int, kStages>> left(static_cast<std::size_t>(num_chains));
            team.run([&](int) {
                team.for_each_stage(chains, is_ready, [&](int chain, int stage) {
                    if (stage >= kStages) fail("a chain goes on beyond its end");
                    const auto own = static_cast<std::size_t>(chain), now = static_cast<std::size_t>(stage);
                    for (auto needed = static_cast<std::size_t>(first_needed[own]); needed <= own; ++needed) {
                        if (now > 0 && left[needed][now - 1] != 1) fail("a stage comes before what it needs");
                    }
                    ++left[own][now];
                });
            });
            for (const std::array<int, kStages>& stages : left) {
                for (const int times : stages) {
                    if (times != 1) fail("a stage of a chain is left out, or done twice");
                }
            }
        }
    }
}

// Steps of up to 60 rows, cut for up to 5 threads.
void check_cuts() {
    Model model;
    model.layers.resize(1);
    AttentionShape& attention = model.layers.front().attention;
    attention.num_heads = 2;
    attention.head_dim = 32;
    attention.window = 1 << 30;
    model.layers.front().q.num_outputs = model.layers.front().q.num_inputs = 64;
    const TokenCost cost(model);
    std::mt19937 random(1);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    for (int turn = 0; turn < 3000; ++turn) {
        Step step;
        std::vector<int> row_of_token, pos_of_token;
        for (int row = 0, num_rows = 1 + below(60); row < num_rows; ++row) {
            const int start_pos = below(3000), num_tokens = below(4) == 0 ? 1 + below(400) : 1;
            StepRow& added = step.rows.emplace_back();
            added.start_pos = start_pos;
            added.first_token = static_cast<int>(row_of_token.size());
            added.num_tokens = num_tokens;
            for (int i = 0; i < num_tokens; ++i) {
                row_of_token.push_back(row);
                pos_of_token.push_back(start_pos + i);
            }
        }
        std::vector<RowBlock> blocks;
        cut_rows(step, cost, 1 + below(5), blocks);
        int begin = 0;
        for (std::size_t number = 0; number < blocks.size(); ++number) {
            const auto& [tokens, first_needed, alone, _] = blocks[number];
            if (tokens.begin != begin || tokens.size() < 1 || tokens.size() > kBlockRows)
                fail("blocks of rows have gaps");
            begin = tokens.end;
            const auto first = static_cast<std::size_t>(tokens.begin);
            const bool cut = first > 0 && row_of_token[first - 1] == row_of_token[first];
            const auto end = static_cast<std::size_t>(tokens.end);
            const bool cut_later = end < row_of_token.size() && row_of_token[end - 1] == row_of_token[end];
            if (alone == (cut || cut_later)) fail("a block is alone, or isn't");
            if (cut && pos_of_token[first] % kTilePositions != 0) fail("a row is cut within a tile of positions");
            for (std::size_t other = 0; other < number; ++other) {
                const auto last = static_cast<std::size_t>(blocks[other].tokens.end) - 1;
                const bool is_needed = static_cast<int>(other) >= first_needed;
                if (is_needed != (row_of_token[last] == row_of_token[first])) fail("a block needs the wrong ones");
            }
        }
        if (begin != static_cast<int>(row_of_token.size())) fail("rows are in no block");
    }
}

// Of rows of a single token: whole blocks at once, of the last one the tiles in use; no more than is allowed.
void check_fetcher() {
    Model model;
    model.layers.resize(2);
    for (Layer& layer : model.layers) {
        layer.attention.num_kv_heads = 2;
        layer.attention.head_dim = 32;
        layer.attention.window = 1 << 30;
    }
    const AttentionShape& shape = model.layers[1].attention;
    const KvPool kv(model, 8, 2 * kTilePositions, KvFormat::bf16);
    Step step;
    step.block_ids = {5, 0, 3, 1, 7, 2};
    const int lengths[] = {70, 2, 33}, num_tokens[] = {1, 5, 1}, first_tokens[] = {0, 1, 6}, first_blocks[] = {0, 3, 4};
    for (int i = 0; i < 3; ++i) {
        StepRow& row = step.rows.emplace_back();
        row.start_pos = lengths[i];
        row.num_tokens = num_tokens[i];
        row.first_token = first_tokens[i];
        row.first_block = first_blocks[i];
    }
    const auto fetched = [&](TokenSpan tokens, std::size_t most) {
        std::size_t found = 0;
        KvFetcher fetcher(kv, shape, 1, step, tokens, most);
        while (fetcher.at != nullptr) {
            if (fetcher.at < kv.block(0) || fetcher.end > kv.block(7) + kv.block_bytes())
                fail("fetches strange memory");
            found += static_cast<std::size_t>(fetcher.end - fetcher.at);
            fetcher.more(fetcher);
        }
        return found;
    };
    const std::size_t block = kv.layer_bytes(shape), tile = block / 2;
    if (fetched({0, 7}, 1 << 20) != 3 * block + 2 * tile) fail("keys and values of a batch are not fetched");
    if (fetched({1, 7}, 1 << 20) != block + tile) fail("keys and values of a block of rows are not fetched");
    if (fetched({0, 7}, 1000) != 1000) fail("more is fetched than may be");
}

}  // namespace
}  // namespace freehold

int main() {
    using namespace freehold;
    check_cuts();
    check_chains();
    check_fetcher();
    for (const std::string& isa : available_isas()) {
        for (int i = 0; i < kNumSources; ++i) {
            const auto type = static_cast<SourceType>(i);
            if (type != SourceType::F16 && type != SourceType::BF16) check_linear(isa, type);
        }
        for (const SourceType type : {SourceType::Q4_1, SourceType::Q4_0, SourceType::Q8_0, SourceType::F32}) {
            check_steps(isa, {type, false, KvFormat::bf16});
            if (type != SourceType::F32) check_steps(isa, {type, true, KvFormat::bf16});
        }
        check_steps(isa, {SourceType::Q4_1, true, KvFormat::int8});
        for (const SourceType type : {SourceType::Q4_1, SourceType::Q4_0, SourceType::Q8_0}) {
            if (choose_kernels(isa).integer_scales) check_steps(isa, {type, true, KvFormat::bf16, true});
        }
    }
    std::printf("all well\n");
    return 0;
}
