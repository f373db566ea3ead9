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

void plan_attention(const AttentionShape& shape, const Step& step, int num_threads, AttentionPlan& plan) {
    plan.items.clear();
    plan.pieces.clear();
    const int each = tokens_per_item(shape);
    const int stride = partial_stride(round_up(shape.head_dim, kPanel));
    const int heads = shape.num_heads / shape.num_kv_heads;
    std::ptrdiff_t floats = 0;
    for (std::size_t index = 0; index < step.rows.size(); ++index) {
        const StepRow& row = step.rows[index];
        for (int done = 0; done < row.num_tokens; done += each) {
            const int count = std::min(each, row.num_tokens - done);
            const int pos = row.start_pos + done;
            const int first = first_piece(shape, pos);
            const int num_pieces = (pos + count - 1) / kPiece + 1 - first;
            for (int kv_head = 0; kv_head < shape.num_kv_heads; ++kv_head) {
                const std::ptrdiff_t piece_floats = static_cast<std::ptrdiff_t>(count) * heads * stride;
                plan.items.push_back({static_cast<int>(index), row.first_token + done, count, pos, kv_head, first,
                                      num_pieces, floats, piece_floats});
                floats += num_pieces * piece_floats;
            }
        }
    }
    const auto num_items = static_cast<int>(plan.items.size());
    plan.shared = num_threads > 1 && num_items < kItemsPerThread * num_threads &&
                  floats <= static_cast<std::ptrdiff_t>(Scratch::kPieceFloats);
    if (!plan.shared) return;
    for (int item = 0; item < num_items; ++item) {
        for (int piece = 0; piece < plan.items[static_cast<std::size_t>(item)].num_pieces; ++piece) {
            plan.pieces.push_back({item, piece});
        }
    }
}

}  // namespace freehold
