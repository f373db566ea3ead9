#include "attention.h"

#include <algorithm>

namespace freehold {
namespace {

std::ptrdiff_t at(int row, int stride) { return static_cast<std::ptrdiff_t>(row) * stride; }

int num_queries(const AttendCall& call) { return call.num_tokens * call.num_heads; }

// The states of a call's queries over no positions.
void clear_states(float* states, const AttendCall& call) {
    const int stride = partial_stride(call.kv.value_stride);
    std::fill_n(states, at(num_queries(call), stride), 0.0f);
    for (int q = 0; q < num_queries(call); ++q) states[at(q, stride)] = -__builtin_inff();
}

}  // namespace

Attention::Attention(const Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels,
                     Team& team, bool bf16_dot)
    : model_(model), kv_(kv), scratch_(scratch), kernels_(kernels), team_(team), bf16_dot_(bf16_dot) {
    for (const Layer& layer : model_.layers) {
        const auto same = [&](const AttentionShape* shape) { return same_plan(*shape, layer.attention); };
        const auto found = std::find_if(plan_shapes_.begin(), plan_shapes_.end(), same);
        layer_plan_.push_back(static_cast<std::size_t>(found - plan_shapes_.begin()));
        if (found == plan_shapes_.end()) plan_shapes_.push_back(&layer.attention);
    }
    plans_.resize(plan_shapes_.size());
    block_plans_.resize(plan_shapes_.size());
}

void Attention::prepare(const Step& step, const std::vector<RowBlock>& blocks, const std::vector<int>& kept) {
    step_ = &step;
    const std::vector<TokenRun> rows = whole_rows(step);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        if (blocks.empty()) plan_attention(*plan_shapes_[i], step, rows, team_.size(), plans_[i]);
        block_plans_[i].resize(std::max(block_plans_[i].size(), blocks.size()));
        for (std::size_t block = 0; block < blocks.size(); ++block) {
            plan_attention(*plan_shapes_[i], step, runs_within(rows, blocks[block].tokens), 1, block_plans_[i][block]);
        }
    }
    plan_attention(model_.layers.back().attention, step, runs_of(step, kept), team_.size(), last_plan_);
}

void Attention::run(int thread, int layer, Profile* profile) const {
    const bool last = layer + 1 == static_cast<int>(model_.layers.size());
    const AttentionPlan& plan = last ? last_plan_ : plans_[plan_index(layer)];
    if (plan.shared) {
        run_pieces(thread, layer, plan, profile);
    } else {
        run_whole_items(thread, layer, plan, profile);
    }
}

void Attention::run_block(int thread, int layer, int block, Profile* profile) const {
    const Timed timed(profile, thread, Phase::attention, layer);
    const AttentionPlan& plan = block_plans_[plan_index(layer)][static_cast<std::size_t>(block)];
    for (std::size_t number = 0; number < plan.items.size(); ++number) {
        run_item(thread, layer, plan, static_cast<int>(number));
    }
}

KvView Attention::kv_of(int layer, const AttentionItem& item) const {
    const StepRow& row = step_->rows[static_cast<std::size_t>(item.row)];
    return kv_.view(model_.layers[static_cast<std::size_t>(layer)].attention, layer, item.kv_head,
                    step_->block_ids.data() + row.first_block);
}

AttendCall Attention::call_of(int layer, const AttentionItem& item) const {
    const AttentionShape& a = model_.layers[static_cast<std::size_t>(layer)].attention;
    const int heads = a.num_heads / a.num_kv_heads;
    const int stride = round_up(a.query_size(), kStrip);
    const bool int8_kv = kv_.format() == KvFormat::int8;
    const std::ptrdiff_t first = at(item.first_token, stride) + item.kv_head * heads * a.head_dim;
    return AttendCall{
        .kv = kv_of(layer, item),
        .queries = int8_kv || bf16_dot_ ? nullptr : scratch_.queries + first,
        .half_queries = bf16_dot_ ? scratch_.half_queries + first : nullptr,
        .int8_queries = int8_kv ? scratch_.int8_query(a, item.first_token, item.kv_head * heads) : nullptr,
        .int8_stride = std::ptrdiff_t{a.num_heads} * int8_query_bytes(a.head_dim),
        .query_stride = stride,
        .num_heads = heads,
        .first_pos = item.first_pos,
        .num_tokens = item.num_tokens,
        .window = a.window};
}

// Joins one piece to `states`; meanwhile the next work's keys and values come into the cache.
void Attention::attend(int layer, const AttentionPlan& plan, AttendCall& call, Work now, Work next,
                       float* states) const {
    const AttentionItem& item = plan.items[static_cast<std::size_t>(now.item)];
    const AttentionItem& next_item = plan.items[static_cast<std::size_t>(next.item)];
    KvAhead ahead;
    ahead.kv = next.item == now.item ? call.kv : kv_of(layer, next_item);
    ahead.first_pos = (next_item.first_piece + next.piece) * kPiece;
    ahead.end_pos = std::min(ahead.first_pos + kPiece, next_item.first_pos + next_item.num_tokens);
    call.ahead = &ahead;
    kernels_.attend_piece(call, item.first_piece + now.piece, states);
}

void Attention::run_whole_items(int thread, int layer, const AttentionPlan& plan, Profile* profile) const {
    team_.for_each_in_runs(thread, static_cast<int>(plan.items.size()), [&](int number) {
        const Timed timed(profile, thread, Phase::attention, layer);
        run_item(thread, layer, plan, number);
    });
}

void Attention::run_item(int thread, int layer, const AttentionPlan& plan, int number) const {
    float* states = scratch_.of_thread(thread).states;
    const int last_item = static_cast<int>(plan.items.size()) - 1;
    const AttentionItem& item = plan.items[static_cast<std::size_t>(number)];
    AttendCall call = call_of(layer, item);
    clear_states(states, call);
    for (int piece = 0; piece < item.num_pieces; ++piece) {
        const bool last = piece + 1 == item.num_pieces;
        const Work next = last ? Work{std::min(number + 1, last_item), 0} : Work{number, piece + 1};
        attend(layer, plan, call, {number, piece}, next, states);
    }
    finish(call, item, states);
}

void Attention::run_pieces(int thread, int layer, const AttentionPlan& plan, Profile* profile) const {
    const auto num_pieces = static_cast<int>(plan.pieces.size());
    const bool base_two = bf16_dot_ || (kv_.format() == KvFormat::int8 && kernels_.bf16_dot);
    const auto work_of = [&](int number) {
        const AttentionPlan::Piece& piece = plan.pieces[static_cast<std::size_t>(number)];
        return Work{piece.item, piece.piece};
    };
    team_.for_each_in_runs(thread, num_pieces, [&](int number) {
        const Timed timed(profile, thread, Phase::attention, layer);
        const Work now = work_of(number);
        const AttentionItem& item = plan.items[static_cast<std::size_t>(now.item)];
        float* states = scratch_.piece_states + item.states_at + now.piece * item.piece_floats;
        AttendCall call = call_of(layer, item);
        clear_states(states, call);
        attend(layer, plan, call, now, work_of(std::min(number + 1, num_pieces - 1)), states);
    });
    team_.for_each(static_cast<int>(plan.items.size()), [&](int number) {
        const Timed timed(profile, thread, Phase::attention_fold, layer);
        const AttentionItem& item = plan.items[static_cast<std::size_t>(number)];
        const AttendCall call = call_of(layer, item);
        float* states = scratch_.piece_states + item.states_at;
        for (int piece = 1; piece < item.num_pieces; ++piece) {
            kernels_.fold(base_two, states, states + piece * item.piece_floats, num_queries(call),
                          call.kv.value_stride);
        }
        finish(call, item, states);
    });
}

void Attention::finish(const AttendCall& call, const AttentionItem& item, const float* states) const {
    const int stride = partial_stride(call.kv.value_stride);
    const int head_dim = call.kv.head_dim;
    for (int q = 0; q < num_queries(call); ++q, states += stride) {
        const int output = item.first_output + q / call.num_heads;
        const int head = item.kv_head * call.num_heads + q % call.num_heads;
        kernels_.finish(states, head_dim, scratch_.attended + at(output, call.query_stride) + head * head_dim);
    }
}

}  // namespace freehold
