#include "attention_plan.h"

#include <algorithm>

#include "kernels.h"
#include "scratch.h"

namespace freehold {
namespace {

constexpr int kItemsPerThread = 4;  // below this many, threads would idle

int first_piece(const AttentionShape& shape, int first_pos) {
    return shape.window > first_pos ? 0 : (first_pos - shape.window + 1) / kPiece;
}

}  // namespace

bool same_plan(const AttentionShape& a, const AttentionShape& b) {
    return a.num_heads == b.num_heads && a.num_kv_heads == b.num_kv_heads && a.head_dim == b.head_dim &&
           a.window == b.window;
}

std::vector<TokenRun> whole_rows(const Step& step) {
    std::vector<TokenRun> runs;
    for (std::size_t index = 0; index < step.rows.size(); ++index) {
        const StepRow& row = step.rows[index];
        runs.push_back({static_cast<int>(index), row.first_token, row.num_tokens, row.first_token});
    }
    return runs;
}

std::vector<TokenRun> runs_within(const std::vector<TokenRun>& rows, TokenSpan tokens) {
    std::vector<TokenRun> runs;
    for (const TokenRun& row : rows) {
        const int begin = std::max(row.first_token, tokens.begin);
        const int end = std::min(row.first_token + row.num_tokens, tokens.end);
        if (begin < end) runs.push_back({row.row, begin, end - begin, row.first_output + begin - row.first_token});
    }
    return runs;
}

std::vector<TokenRun> runs_of(const Step& step, const std::vector<int>& tokens) {
    std::vector<TokenRun> runs;
    int row = 0;
    for (std::size_t output = 0; output < tokens.size(); ++output) {
        const int token = tokens[output];
        const auto ends_before = [&](const StepRow& r) { return r.first_token + r.num_tokens <= token; };
        while (ends_before(step.rows[static_cast<std::size_t>(row)])) ++row;
        if (!runs.empty() && runs.back().row == row && runs.back().first_token + runs.back().num_tokens == token) {
            ++runs.back().num_tokens;
        } else {
            runs.push_back({row, token, 1, static_cast<int>(output)});
        }
    }
    return runs;
}

void plan_attention(const AttentionShape& shape, const Step& step, const std::vector<TokenRun>& runs, int num_threads,
                    AttentionPlan& plan) {
    plan.items.clear();
    plan.pieces.clear();
    const int each = tokens_per_item(shape);
    const int stride = partial_stride(round_up(shape.head_dim, kPanel));
    const int heads = shape.num_heads / shape.num_kv_heads;
    std::ptrdiff_t floats = 0;
    for (const TokenRun& run : runs) {
        const StepRow& row = step.rows[static_cast<std::size_t>(run.row)];
        for (int done = 0; done < run.num_tokens; done += each) {
            const int count = std::min(each, run.num_tokens - done);
            const int pos = row.start_pos + run.first_token - row.first_token + done;
            const int first = first_piece(shape, pos);
            const int num_pieces = (pos + count - 1) / kPiece + 1 - first;
            for (int kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head) {
                const std::ptrdiff_t piece_floats = static_cast<std::ptrdiff_t>(count) * heads * stride;
                plan.items.push_back({.row = run.row,
                                      .first_token = run.first_token + done,
                                      .first_output = run.first_output + done,
                                      .num_tokens = count,
                                      .first_pos = pos,
                                      .kv_head = kv_head,
                                      .first_piece = first,
                                      .num_pieces = num_pieces,
                                      .states_at = floats,
                                      .piece_floats = piece_floats});
                floats += num_pieces * piece_floats;
            }
        }
    }
    const auto num_items = static_cast<int>(plan.items.size());
    plan.shared = num_threads > 1 && num_items < kItemsPerThread * num_threads &&
                  floats <= static_cast<std::ptrdiff_t>(Scratch::kPieceFloats);
    if (!plan.shared) return;
    for (int first = 0; first < num_items; first += shape.num_kv_heads) {
        for (int piece = 0; piece < plan.items[static_cast<std::size_t>(first)].num_pieces; ++piece) {
            for (int head = 0; head < shape.num_kv_heads; ++head) plan.pieces.push_back({first + head, piece});
        }
    }
}

}  // namespace freehold
