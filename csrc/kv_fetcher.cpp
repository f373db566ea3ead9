#include "kv_fetcher.h"

#include <algorithm>

namespace freehold {

KvFetcher::KvFetcher(const KvPool& kv, const AttentionShape& shape, int layer, const Step& step, TokenSpan tokens,
                     std::size_t most_bytes)
    : kv_(&kv), shape_(&shape), step_(&step), layer_(layer), end_token_(tokens.end), left_bytes_(most_bytes) {
    more = [](Background& self) { static_cast<KvFetcher&>(self).advance(); };
    const auto before = [](const StepRow& row, int token) { return row.first_token < token; };
    const auto first = std::lower_bound(step.rows.begin(), step.rows.end(), tokens.begin, before);
    begin_row(static_cast<std::size_t>(first - step.rows.begin()));
    advance();
}

void KvFetcher::begin_row(std::size_t row) {
    while (row < step_->rows.size() && step_->rows[row].num_tokens > 1) ++row;
    row_ = row;
    if (row == step_->rows.size()) return;
    const int oldest = std::max(0, step_->rows[row].start_pos - shape_->window + 1);
    pos_ = oldest / kv_->block_size() * kv_->block_size();
    part_ = 0;
}

void KvFetcher::advance() {
    at = end = nullptr;
    for (; left_bytes_ > 0 && row_ < step_->rows.size() && step_->rows[row_].first_token < end_token_;
         begin_row(row_ + 1)) {
        const StepRow& row = step_->rows[row_];
        const std::int32_t* block_ids = step_->block_ids.data() + row.first_block;
        const int size = kv_->block_size();
        std::size_t num_bytes = 0;
        if (pos_ + size <= row.start_pos) {
            const KvView view = kv_->view(*shape_, layer_, 0, block_ids);
            at = view.block(pos_) + view.keys_at;
            num_bytes = kv_->layer_bytes(*shape_);
            pos_ += size;
        } else if (pos_ < row.start_pos && part_ < 2 * shape_->num_kv_heads) {
            const bool keys = part_ % 2 == 0;
            const KvView view = kv_->view(*shape_, layer_, part_ / 2, block_ids);
            const auto num_tiles =
                static_cast<std::size_t>((row.start_pos - pos_ + kTilePositions - 1) / kTilePositions);
            at = keys ? view.key_tile(pos_) : view.value_tile(pos_);
            num_bytes = num_tiles * (keys ? view.key_tile_bytes() : view.value_tile_bytes());
            ++part_;
        } else {
            continue;
        }
        end = at + std::min(num_bytes, left_bytes_);
        left_bytes_ -= std::min(num_bytes, left_bytes_);
        return;
    }
}

}  // namespace freehold
