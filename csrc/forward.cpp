#include "forward.h"

#include <algorithm>

namespace freehold {
namespace {

constexpr int kRowBlock = 192;      // rows that share a strip while it is in cache; whole tiles of every ISA
constexpr int kItemsPerThread = 6;  // of a linear layer, for threads to share out

std::ptrdiff_t at(int row, int stride) { return static_cast<std::ptrdiff_t>(row) * stride; }

// The states of a call's queries over no positions.
void clear_states(float* states, const AttendCall& call) {
    const int stride = partial_stride(call.kv.value_stride);
    const int num_queries = call.num_tokens * call.num_heads;
    std::fill_n(states, static_cast<std::ptrdiff_t>(num_queries) * stride, 0.0f);
    for (int q = 0; q < num_queries; ++q) states[at(q, stride)] = -__builtin_inff();
}

void add_bias(float* row, const std::vector<float>& bias) {
    for (std::size_t i = 0; i < bias.size(); ++i) row[i] += bias[i];
}

}  // namespace

Forward::Forward(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team,
                 bool int8)
    : model_(model),
      kv_(kv),
      scratch_(scratch),
      kernels_(kernels),
      team_(team),
      int8_(int8),
      bf16_dot_(int8 && kv.bf16() && kernels.bf16_dot) {
    for (const Layer& layer : model_.layers) {
        const auto same = [&](const AttentionShape* shape) { return same_plan(*shape, layer.attention); };
        const auto found = std::find_if(plan_shapes_.begin(), plan_shapes_.end(), same);
        layer_plan_.push_back(static_cast<int>(found - plan_shapes_.begin()));
        if (found == plan_shapes_.end()) plan_shapes_.push_back(&layer.attention);
    }
    plans_.resize(plan_shapes_.size());
}

void Forward::prepare(const Step& step) {
    step_ = &step;
    num_tokens_ = static_cast<int>(step.token_ids.size());
    token_row_.assign(static_cast<std::size_t>(num_tokens_), 0);
    int end_pos = 0;
    for (std::size_t index = 0; index < step.rows.size(); ++index) {
        const StepRow& row = step.rows[index];
        const auto begin = token_row_.begin() + row.first_token;
        std::fill(begin, begin + row.num_tokens, static_cast<int>(index));
        end_pos = std::max(end_pos, row.start_pos + row.num_tokens);
    }
    for (RopeTable& rope : model_.ropes) rope.extend(end_pos);
    for (std::size_t i = 0; i < plans_.size(); ++i) plan_attention(*plan_shapes_[i], step, team_.size(), plans_[i]);
}

bool Forward::quantizes(std::initializer_list<const Matrix*> matrices) const {
    return int8_ && std::any_of(matrices.begin(), matrices.end(),
                                [](const Matrix* m) { return layout_of(m->layout).quantized(); });
}

int Forward::group_of(std::initializer_list<const Matrix*> matrices) const {
    const bool fine =
        std::any_of(matrices.begin(), matrices.end(), [](const Matrix* m) { return m->fine_activations; });
    return fine ? kFineGroup : 2 * kFineGroup;
}

void Forward::layers(int thread) {
    const Widths& w = scratch_.widths();
    const int hidden = w.hidden;
    team_.for_each(num_tokens_, [&](int token) {
        float* row = scratch_.hidden + at(token, hidden);
        unpack_row(model_.embed, step_->token_ids[static_cast<std::size_t>(token)], row);
        std::fill(row + model_.hidden_size, row + hidden, 0.0f);
    });
    for (int index = 0; index < static_cast<int>(model_.layers.size()); ++index) {
        const Layer& layer = model_.layers[static_cast<std::size_t>(index)];
        const int num_queries = round_up(layer.attention.query_size(), kStrip);
        const int mlp = round_up(layer.mlp_size, kStrip);
        const Activations attn_input =
            scratch_.activations(scratch_.normed, hidden, group_of({&layer.q, &layer.k, &layer.v}));
        const bool quantize_qkv = quantizes({&layer.q, &layer.k, &layer.v});
        team_.for_each(num_tokens_, [&](int token) { norm(layer.attn_norm, attn_input, token, token, quantize_qkv); });
        project(layer, attn_input);
        team_.for_each(num_tokens_, [&](int token) { place_token(layer, index, token); });
        attend(layer, index, thread);
        const Activations attended = scratch_.activations(scratch_.attended, num_queries, group_of({&layer.o}));
        if (quantizes({&layer.o})) {
            team_.for_each(num_tokens_, [&](int token) { kernels_.quantize(attended, token); });
        }
        linear(attended, num_tokens_, {{&layer.o, scratch_.hidden, hidden, true}});
        const Activations normed = scratch_.activations(scratch_.normed, hidden, group_of({&layer.gate, &layer.up}));
        const bool quantize_mlp = quantizes({&layer.gate, &layer.up});
        team_.for_each(num_tokens_, [&](int token) { norm(layer.mlp_norm, normed, token, token, quantize_mlp); });
        linear(normed, num_tokens_, {{&layer.gate, scratch_.gate, mlp, false}, {&layer.up, scratch_.up, mlp, false}});
        const Activations inner = scratch_.activations(scratch_.gate, mlp, group_of({&layer.down}));
        const bool quantize_inner = quantizes({&layer.down});
        team_.for_each(num_tokens_, [&](int token) {
            float* gate = scratch_.gate + at(token, mlp);
            kernels_.silu_mul(gate, scratch_.up + at(token, mlp), mlp, gate);
            if (quantize_inner) kernels_.quantize(inner, token);
        });
        linear(inner, num_tokens_, {{&layer.down, scratch_.hidden, hidden, true}});
    }
}

void Forward::logits(const int* tokens, int count) {
    const Matrix& output = model_.output();
    const Activations normed = scratch_.activations(scratch_.normed, scratch_.widths().hidden, group_of({&output}));
    const bool quantize = quantizes({&output});
    team_.for_each(count, [&](int row) { norm(model_.final_norm, normed, tokens[row], row, quantize); });
    linear(normed, count, {{&output, scratch_.logits, scratch_.logit_stride(), false}});
}

void Forward::norm(const std::vector<float>& weight, const Activations& out, int token, int row, bool quantize) {
    kernels_.rms_norm(scratch_.hidden + at(token, out.stride), weight.data(), model_.hidden_size, out.stride,
                      model_.norm_eps, out.x + at(row, out.stride));
    if (quantize) kernels_.quantize(out, row);
}

void Forward::project(const Layer& layer, const Activations& normed) {
    const int num_queries = round_up(layer.attention.query_size(), kStrip);
    const int num_keys = round_up(layer.attention.kv_size(), kStrip);
    linear(normed, num_tokens_,
           {{&layer.q, scratch_.queries, num_queries, false},
            {&layer.k, scratch_.keys, num_keys, false},
            {&layer.v, scratch_.values, num_keys, false}});
}

// Biases, norms and rotation of one token's heads; keys and values go to their blocks.
void Forward::place_token(const Layer& layer, int layer_index, int token) {
    const AttentionShape& a = layer.attention;
    const StepRow& row = step_->rows[static_cast<std::size_t>(token_row_[static_cast<std::size_t>(token)])];
    const int pos = row.start_pos + token - row.first_token;
    const RopeTable& rope = model_.ropes[static_cast<std::size_t>(a.rope)];
    float* queries = scratch_.queries + at(token, round_up(a.query_size(), kStrip));
    float* keys = scratch_.keys + at(token, round_up(a.kv_size(), kStrip));
    float* values = scratch_.values + at(token, round_up(a.kv_size(), kStrip));
    if (a.qkv_bias) {
        add_bias(queries, layer.q_bias);
        add_bias(keys, layer.k_bias);
        add_bias(values, layer.v_bias);
    }
    const auto turn = [&](float* head, const std::vector<float>& weight, float scale) {
        if (a.qk_norm) kernels_.head_norm(head, weight.data(), a.head_dim, model_.norm_eps);
        kernels_.rotate(head, rope.cosines(pos), rope.sines(pos), rope.num_pairs(), a.head_dim, scale);
    };
    for (int head = 0; head < a.num_heads; ++head) turn(queries + head * a.head_dim, layer.q_norm, a.scale);
    if (bf16_dot_) {
        kernels_.halve_query(queries, a.query_size(),
                             scratch_.half_queries + at(token, round_up(a.query_size(), kStrip)));
    }
    for (int head = 0; head < a.num_kv_heads; ++head) {
        float* key = keys + head * a.head_dim;
        turn(key, layer.k_norm, 1.0f);
        const KvView kv = kv_.view(a, layer_index, head, step_->block_ids.data() + row.first_block);
        kernels_.store_key(kv, pos, key);
        kernels_.store_value(kv, pos, values + head * a.head_dim);
    }
}

AttendCall Forward::attend_call(const Layer& layer, int layer_index, const AttentionItem& item) const {
    const AttentionShape& a = layer.attention;
    const int heads = a.num_heads / a.num_kv_heads;
    const int stride = round_up(a.query_size(), kStrip);
    const StepRow& row = step_->rows[static_cast<std::size_t>(item.row)];
    const std::ptrdiff_t first = at(item.first_token, stride) + item.kv_head * heads * a.head_dim;
    return AttendCall{.kv = kv_.view(a, layer_index, item.kv_head, step_->block_ids.data() + row.first_block),
                      .queries = scratch_.queries + first,
                      .half_queries = bf16_dot_ ? scratch_.half_queries + first : nullptr,
                      .query_stride = stride,
                      .num_heads = heads,
                      .first_pos = item.first_pos,
                      .num_tokens = item.num_tokens,
                      .window = a.window};
}

void Forward::finish(const AttendCall& call, const AttentionItem& item, const float* state) const {
    const int stride = partial_stride(call.kv.value_stride);
    const int head_dim = call.kv.head_dim;
    for (int q = 0; q < call.num_tokens * call.num_heads; ++q, state += stride) {
        const int token = item.first_token + q / call.num_heads;
        const int head = item.kv_head * call.num_heads + q % call.num_heads;
        kernels_.finish(state, head_dim, scratch_.attended + at(token, call.query_stride) + head * head_dim);
    }
}

void Forward::attend(const Layer& layer, int layer_index, int thread) {
    const AttentionPlan& plan = plans_[static_cast<std::size_t>(layer_plan_[static_cast<std::size_t>(layer_index)])];
    const auto num_items = static_cast<int>(plan.items.size());
    if (plan.shared) {
        team_.for_each(static_cast<int>(plan.pieces.size()), [&](int number) {
            const AttentionPlan::Piece& piece = plan.pieces[static_cast<std::size_t>(number)];
            const AttentionItem& item = plan.items[static_cast<std::size_t>(piece.item)];
            const AttendCall call = attend_call(layer, layer_index, item);
            float* states = scratch_.piece_states + item.states_at + piece.piece * item.piece_floats;
            clear_states(states, call);
            kernels_.attend_piece(call, item.first_piece + piece.piece, states);
        });
    }
    team_.for_each(num_items, [&](int number) {
        // Later items reach further back and cost more: they come first.
        const AttentionItem& item = plan.items[static_cast<std::size_t>(num_items - 1 - number)];
        const AttendCall call = attend_call(layer, layer_index, item);
        float* states = scratch_.states(thread);
        clear_states(states, call);
        for (int piece = 0; piece < item.num_pieces; ++piece) {
            if (plan.shared) {
                const float* other = scratch_.piece_states + item.states_at + piece * item.piece_floats;
                kernels_.fold(bf16_dot_, states, other, call.num_tokens * call.num_heads, call.kv.value_stride);
            } else {
                kernels_.attend_piece(call, item.first_piece + piece, states);
            }
        }
        finish(call, item, states);
    });
}

void Forward::linear(const Activations& input, int num_rows, std::initializer_list<LinearJob> jobs) {
    int total_strips = 0;
    for (const LinearJob& job : jobs) total_strips += job.matrix->num_strips();
    const int row_blocks = (num_rows + kRowBlock - 1) / kRowBlock;
    const int wanted = std::max(1, team_.size() * kItemsPerThread / row_blocks);
    const int strips_each = team_.size() == 1 ? total_strips : std::max(1, (total_strips + wanted - 1) / wanted);
    const int strip_items = (total_strips + strips_each - 1) / strips_each;
    team_.for_each(strip_items * row_blocks, [&](int item) {
        const int row_begin = item % row_blocks * kRowBlock;
        const int row_end = std::min(num_rows, row_begin + kRowBlock);
        int begin = item / row_blocks * strips_each;
        int end = std::min(total_strips, begin + strips_each);
        for (const LinearJob& job : jobs) {
            const Matrix& m = *job.matrix;
            if (begin < m.num_strips() && end > 0) {
                kernels_.linear(LinearCall{.weights = m.data,
                                           .strip_bytes = m.strip_bytes(),
                                           .layout = m.layout,
                                           .num_inputs = m.num_inputs,
                                           .strip_begin = std::max(begin, 0),
                                           .strip_end = std::min(end, m.num_strips()),
                                           .input = &input,
                                           .row_begin = row_begin,
                                           .row_end = row_end,
                                           .out = job.out,
                                           .out_stride = job.out_stride,
                                           .add = job.add,
                                           .int8 = int8_});
            }
            begin -= m.num_strips();
            end -= m.num_strips();
        }
    });
}

}  // namespace freehold
