#include "layer_ops.h"

#include <algorithm>
#include <cstring>

namespace freehold {
namespace {

std::ptrdiff_t at(int row, int stride) { return static_cast<std::ptrdiff_t>(row) * stride; }

void add_units(std::vector<HeadUnit>& units, HeadUnit::Kind kind, const Matrix& matrix, int num_heads, int head_dim) {
    const int each = heads_per_unit(num_heads, head_dim);
    for (int head = 0; head < num_heads; head += each) {
        const int outputs_end = (head + each) * head_dim;
        units.push_back({kind, &matrix, head, each, head * head_dim / kStrip, (outputs_end + kStrip - 1) / kStrip});
    }
}

}  // namespace

LayerOps::LayerOps(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, bool int8,
                   bool bf16_dot)
    : model_(model),
      kv_(kv),
      scratch_(scratch),
      kernels_(kernels),
      int8_(int8),
      bf16_dot_(bf16_dot),
      backgrounds_(scratch.num_threads(), nullptr) {
    for (const Layer& layer : model_.layers) {
        const AttentionShape& a = layer.attention;
        std::vector<HeadUnit>& units = units_.emplace_back();
        add_units(units, HeadUnit::Kind::query, layer.q, a.num_heads, a.head_dim);
        add_units(units, HeadUnit::Kind::key, layer.k, a.num_kv_heads, a.head_dim);
        add_units(units, HeadUnit::Kind::value, layer.v, a.num_kv_heads, a.head_dim);
    }
}

void LayerOps::prepare(const Step& step, Profile* profile) {
    step_ = &step;
    profile_ = profile;
    runs_.clear();
    token_run_.clear();
    int end_pos = 0;
    for (const StepRow& row : step.rows) {
        const int row_end = row.first_token + row.num_tokens;
        for (int token = row.first_token, pos = row.start_pos; token < row_end;) {
            const int count = std::min(kTilePositions - pos % kTilePositions, row_end - token);
            token_run_.insert(token_run_.end(), static_cast<std::size_t>(count), static_cast<int>(runs_.size()));
            runs_.push_back({{token, token + count}, pos, step.block_ids.data() + row.first_block});
            token += count;
            pos += count;
        }
        end_pos = std::max(end_pos, row.start_pos + row.num_tokens);
    }
    angles_.resize(model_.ropes.size());
    for (std::size_t i = 0; i < angles_.size(); ++i) {
        model_.ropes[i].extend(end_pos);
        angles_[i].clear();
        for (const TileRun& run : runs_) {
            for (int t = 0; t < run.tokens.size(); ++t) angles_[i].push_back(model_.ropes[i].angles(run.first_pos + t));
        }
    }
}

template <class Each>
void LayerOps::for_each_run(TokenSpan tokens, Each&& each) const {
    for (int token = tokens.begin; token < tokens.end;) {
        const TileRun& run = runs_[static_cast<std::size_t>(token_run_[static_cast<std::size_t>(token)])];
        const int end = std::min(run.tokens.end, tokens.end);
        each(TokenSpan{token, end}, run.first_pos + token - run.tokens.begin, run.block_ids);
        token = end;
    }
}

LayerOps::Reads LayerOps::reads_of(std::initializer_list<const Matrix*> matrices) const {
    Reads reads;
    for (const Matrix* matrix : matrices) {
        const Layout& layout = layout_of(matrix->layout);
        reads.numbers |= int8_ && layout.quantized();
        reads.records |= int8_ && layout.integer_scales();
    }
    return reads;
}

void LayerOps::quantize(Reads reads, const Activations& rows, int row) const {
    if (reads.numbers) kernels_.quantize(rows, row, 0, rows.x + at(row, rows.stride), rows.stride);
    if (reads.records) kernels_.fill_records(rows, row);
}

namespace {

int group_of(std::initializer_list<const Matrix*> matrices) {
    const bool fine =
        std::any_of(matrices.begin(), matrices.end(), [](const Matrix* m) { return m->fine_activations; });
    return fine ? kFineGroup : 2 * kFineGroup;
}

}  // namespace

Activations LayerOps::input_of(int thread, int stride, std::initializer_list<const Matrix*> matrices) const {
    Activations input = scratch_.of_thread(thread).input;
    input.stride = stride;
    input.group = group_of(matrices);
    return input;
}

Activations LayerOps::inner_of(const Layer& layer) const {
    return scratch_.inner(round_up(layer.mlp_size, kStrip), group_of({&layer.down}));
}

void LayerOps::embed(int thread, int token) const {
    const Timed timed(profile_, thread, Phase::embed, 0);
    const int hidden = scratch_.widths().hidden;
    float* row = scratch_.hidden + at(token, hidden);
    unpack_row(model_.embed, step_->token_ids[static_cast<std::size_t>(token)], row);
    std::fill(row + model_.hidden_size, row + hidden, 0.0f);
}

void LayerOps::keep(const std::vector<int>& tokens) const {
    const int hidden = scratch_.widths().hidden;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        std::memmove(scratch_.hidden + at(static_cast<int>(i), hidden), scratch_.hidden + at(tokens[i], hidden),
                     static_cast<std::size_t>(hidden) * sizeof(float));
    }
}

void LayerOps::norm(const std::vector<float>& weight, int token, const Activations& out, int row) const {
    float* x = out.x + at(row, out.stride);
    kernels_.rms_norm(scratch_.hidden + at(token, out.stride), weight.data(), model_.hidden_size, out.stride,
                      model_.norm_eps, x);
}

HeadInputs LayerOps::normed_for_heads(int thread, int layer, TokenSpan tokens) const {
    const Timed timed(profile_, thread, Phase::norm, layer);
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    const Scratch::OfThread& own = scratch_.of_thread(thread);
    HeadInputs inputs{own.input, own.fine};
    inputs.fine.x = inputs.coarse.x;
    inputs.coarse.stride = inputs.fine.stride = scratch_.widths().hidden;
    inputs.coarse.group = 2 * kFineGroup;
    inputs.fine.group = kFineGroup;
    Reads coarse, fine;
    for (const Matrix* matrix : {&l.q, &l.k, &l.v}) {
        const Reads reads = reads_of({matrix});
        Reads& all = matrix->fine_activations ? fine : coarse;
        all = {all.numbers || reads.numbers, all.records || reads.records};
    }
    for (int i = 0; i < tokens.size(); ++i) {
        norm(l.attn_norm, tokens.begin + i, inputs.coarse, i);
        quantize(coarse, inputs.coarse, i);
        quantize(fine, inputs.fine, i);
    }
    return inputs;
}

Activations LayerOps::normed_for_mlp(int thread, int layer, TokenSpan tokens) const {
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    return normed(thread, layer, l.mlp_norm, {&l.gate, &l.up}, tokens);
}

Activations LayerOps::normed_for_logits(int thread, TokenSpan rows) const {
    return normed(thread, 0, model_.final_norm, {&model_.output()}, rows);
}

Activations LayerOps::normed(int thread, int layer, const std::vector<float>& weight,
                             std::initializer_list<const Matrix*> matrices, TokenSpan rows) const {
    const Timed timed(profile_, thread, Phase::norm, layer);
    const Activations out = input_of(thread, scratch_.widths().hidden, matrices);
    const Reads reads = reads_of(matrices);
    for (int i = 0; i < rows.size(); ++i) {
        norm(weight, rows.begin + i, out, i);
        quantize(reads, out, i);
    }
    return out;
}

Activations LayerOps::attended(int thread, int layer, TokenSpan tokens) const {
    const Timed timed(profile_, thread, Phase::quantize, layer);
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    Activations out = input_of(thread, round_up(l.attention.query_size(), kStrip), {&l.o});
    out.x = scratch_.attended + at(tokens.begin, out.stride);
    const Reads reads = reads_of({&l.o});
    for (int i = 0; i < tokens.size(); ++i) quantize(reads, out, i);
    return out;
}

void LayerOps::heads(int thread, int layer, const HeadUnit& unit, const HeadInputs& inputs, TokenSpan tokens,
                     const std::uint8_t* next) const {
    float* out = scratch_.of_thread(thread).first;
    const int stride = (unit.strip_end - unit.strip_begin) * kStrip;
    {
        const Timed timed(profile_, thread, Phase::qkv, layer);
        if (unit.kind != HeadUnit::Kind::query) fetch_places(layer, unit, tokens);
        linear(thread, *unit.matrix, {unit.strip_begin, unit.strip_end}, inputs.of(*unit.matrix), tokens.size(),
               {out, stride, false}, next);
    }
    const Timed timed(profile_, thread, Phase::place, layer);
    place(layer, unit, tokens, out, stride);
}

// Keys and values go to lines that mostly lie in memory: brings them here while the heads are computed.
void LayerOps::fetch_places(int layer, const HeadUnit& unit, TokenSpan tokens) const {
    const AttentionShape& a = model_.layers[static_cast<std::size_t>(layer)].attention;
    for (int h = 0; h < unit.num_heads; ++h) {
        KvView kv = kv_.view(a, layer, unit.first_head + h, nullptr);
        for_each_run(tokens, [&](TokenSpan, int pos, const std::int32_t* block_ids) {
            kv.block_ids = block_ids;
            const bool key = unit.kind == HeadUnit::Kind::key;
            const std::uint8_t* tile = key ? kv.key_tile(pos) : kv.value_tile(pos);
            const std::size_t num_bytes = key ? kv.key_tile_bytes() : kv.value_tile_bytes();
            for (std::size_t line = 0; line < num_bytes; line += kLineBytes) __builtin_prefetch(tile + line, 1, 3);
        });
    }
}

// Biases, norms and rotation; keys and values go to their blocks.
void LayerOps::place(int layer, const HeadUnit& unit, TokenSpan tokens, float* heads, int stride) const {
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    const AttentionShape& a = l.attention;
    const auto rope = static_cast<std::size_t>(a.rope);
    for (int h = 0; h < unit.num_heads; ++h) {
        const int number = unit.first_head + h;
        const HeadRows rows{heads + h * a.head_dim, stride, a.head_dim, tokens.size()};
        const auto bias = [&](const std::vector<float>& of_all) {
            return a.qkv_bias ? of_all.data() + number * a.head_dim : nullptr;
        };
        const auto turn = [&](const std::vector<float>& biases, const std::vector<float>& weight, float scale) {
            kernels_.turn(rows, {.bias = bias(biases),
                                 .norm_weight = a.qk_norm ? weight.data() : nullptr,
                                 .norm_eps = model_.norm_eps,
                                 .num_pairs = model_.ropes[rope].num_pairs(),
                                 .angles = angles_[rope].data() + tokens.begin,
                                 .scale = scale});
        };
        const auto store = [&](void (*kernel)(const KvView&, int, const HeadRows&)) {
            KvView kv = kv_.view(a, layer, number, nullptr);
            for_each_run(tokens, [&](TokenSpan run, int pos, const std::int32_t* block_ids) {
                kv.block_ids = block_ids;
                kernel(kv, pos, rows.from(run.begin - tokens.begin, run.size()));
            });
        };
        switch (unit.kind) {
            case HeadUnit::Kind::query:
                turn(l.q_bias, l.q_norm, a.scale);
                place_queries(a, number, tokens, rows);
                break;
            case HeadUnit::Kind::key:
                turn(l.k_bias, l.k_norm, 1.0f);
                store(kernels_.store_keys);
                break;
            case HeadUnit::Kind::value:
                if (a.qkv_bias) kernels_.turn(rows, {.bias = bias(l.v_bias)});
                store(kernels_.store_values);
                break;
        }
    }
}

// As attention reads them.
void LayerOps::place_queries(const AttentionShape& a, int head, TokenSpan tokens, const HeadRows& queries) const {
    const int stride = round_up(a.query_size(), kStrip);
    const std::ptrdiff_t to = at(tokens.begin, stride) + head * a.head_dim;
    if (kv_.format() != KvFormat::int8 && bf16_dot_) {
        kernels_.halve_queries(queries, scratch_.half_queries + to, stride);
        return;
    }
    for (int i = 0; i < tokens.size(); ++i) {
        if (kv_.format() == KvFormat::int8) {
            kernels_.quantize_query(queries.row(i), a.head_dim, scratch_.int8_query(a, tokens.begin + i, head));
        } else {
            std::copy_n(queries.row(i), a.head_dim, scratch_.queries + to + at(i, stride));
        }
    }
}

void LayerOps::add_attended(int thread, int layer, const Activations& input, TokenSpan tokens, int strip_begin,
                            int strip_end, const std::uint8_t* next) const {
    const Timed timed(profile_, thread, Phase::o, layer);
    const int stride = scratch_.widths().hidden;
    float* out = scratch_.hidden + at(tokens.begin, stride) + strip_begin * kStrip;
    linear(thread, model_.layers[static_cast<std::size_t>(layer)].o, {strip_begin, strip_end}, input, tokens.size(),
           {out, stride, true}, next);
}

void LayerOps::gate_up(int thread, int layer, const Activations& input, TokenSpan tokens, int strip_begin,
                       int strip_end, const std::uint8_t* next) const {
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    const Scratch::OfThread& own = scratch_.of_thread(thread);
    const int width = (strip_end - strip_begin) * kStrip;
    {
        const Timed timed(profile_, thread, Phase::gate_up, layer);
        const std::uint8_t* up = l.up.data + l.up.strip_bytes() * static_cast<std::size_t>(strip_begin);
        linear(thread, l.gate, {strip_begin, strip_end}, input, tokens.size(), {own.first, width, false}, up);
        linear(thread, l.up, {strip_begin, strip_end}, input, tokens.size(), {own.second, width, false}, next);
    }
    const Timed timed(profile_, thread, Phase::gate, layer);
    const Activations inner = inner_of(l);
    const bool quantize = reads_of({&l.down}).numbers;
    const int first = strip_begin * kStrip;
    for (int i = 0; i < tokens.size(); ++i) {
        float* gate = own.first + at(i, width);
        float* out = quantize ? gate : inner.x + at(tokens.begin + i, inner.stride) + first;
        kernels_.silu_mul(gate, own.second + at(i, width), width, out);
        if (quantize) kernels_.quantize(inner, tokens.begin + i, first, gate, width);
    }
}

Activations LayerOps::gated(int thread, int layer, TokenSpan tokens) const {
    const Timed timed(profile_, thread, Phase::gate, layer);
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    Activations out = inner_of(l).from_row(tokens.begin);
    if (!reads_of({&l.down}).records) return out;
    out.records = scratch_.of_thread(thread).inner.records;
    out.tops = scratch_.of_thread(thread).inner.tops;
    for (int i = 0; i < tokens.size(); ++i) kernels_.fill_records(out, i);
    return out;
}

void LayerOps::add_mlp(int thread, int layer, const Activations& input, TokenSpan tokens, int strip_begin,
                       int strip_end, const std::uint8_t* next) const {
    const Timed timed(profile_, thread, Phase::down, layer);
    const Layer& l = model_.layers[static_cast<std::size_t>(layer)];
    const int stride = scratch_.widths().hidden;
    float* out = scratch_.hidden + at(tokens.begin, stride) + strip_begin * kStrip;
    linear(thread, l.down, {strip_begin, strip_end}, input, tokens.size(), {out, stride, true}, next);
}

void LayerOps::logits(int thread, const Activations& input, int count, int strip_begin, int strip_end,
                      const std::uint8_t* next) const {
    const Timed timed(profile_, thread, Phase::head, 0);
    linear(thread, model_.output(), {strip_begin, strip_end}, input, count,
           {scratch_.logits + strip_begin * kStrip, scratch_.logit_stride(), false}, next);
}

void LayerOps::linear(int thread, const Matrix& matrix, Strips strips, const Activations& input, int count,
                      const Output& output, const std::uint8_t* next) const {
    kernels_.linear(LinearCall{.weights = matrix.data + matrix.strip_bytes() * static_cast<std::size_t>(strips.begin),
                               .strip_bytes = matrix.strip_bytes(),
                               .layout = matrix.layout,
                               .num_inputs = matrix.num_inputs,
                               .strip_begin = 0,
                               .strip_end = strips.end - strips.begin,
                               .input = &input,
                               .row_begin = 0,
                               .row_end = count,
                               .out = output.at,
                               .out_stride = output.stride,
                               .add = output.add,
                               .int8 = int8_,
                               .next = next,
                               .background = backgrounds_[static_cast<std::size_t>(thread)]});
}

}  // namespace freehold
