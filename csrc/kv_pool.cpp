#include "kv_pool.h"

namespace freehold {
namespace {

std::size_t element_bytes(bool bf16) { return bf16 ? 2 : 4; }

std::size_t key_bytes(const AttentionShape& a, int block_size, bool bf16) {
    const int elements = bf16 ? round_up(a.head_dim, 2) : a.head_dim;
    return static_cast<std::size_t>(block_size) * static_cast<std::size_t>(elements) * element_bytes(bf16);
}

std::size_t value_bytes(const AttentionShape& a, int block_size, bool bf16) {
    return static_cast<std::size_t>(block_size) * static_cast<std::size_t>(round_up(a.head_dim, kPanel)) *
           element_bytes(bf16);
}

}  // namespace

KvPool::KvPool(const Model& model, int num_blocks, int block_size, bool bf16)
    : num_blocks_(num_blocks), block_size_(block_size), bf16_(bf16) {
    for (const Layer& layer : model.layers) {
        const AttentionShape& a = layer.attention;
        layer_at_.push_back(block_bytes_);
        block_bytes_ += static_cast<std::size_t>(a.num_kv_heads) *
                        (key_bytes(a, block_size, bf16) + value_bytes(a, block_size, bf16));
    }
    // No huge pages here: a touched block would drag in megabytes of untouched neighbours.
    region_ = Region(block_bytes_ * static_cast<std::size_t>(num_blocks), false);
}

double KvPool::position_bytes(const AttentionShape& a) const {
    const std::size_t block = key_bytes(a, block_size_, bf16_) + value_bytes(a, block_size_, bf16_);
    return static_cast<double>(block) * a.num_kv_heads / block_size_;
}

KvView KvPool::view(const AttentionShape& a, int layer, int kv_head, const std::int32_t* block_ids) const {
    const std::size_t keys = key_bytes(a, block_size_, bf16_);
    const std::size_t values = value_bytes(a, block_size_, bf16_);
    const auto heads = static_cast<std::size_t>(a.num_kv_heads);
    const auto head = static_cast<std::size_t>(kv_head);
    return KvView{.base = region_.data() + layer_at_[static_cast<std::size_t>(layer)],
                  .block_bytes = block_bytes_,
                  .block_ids = block_ids,
                  .block_size = block_size_,
                  .keys_at = head * keys,
                  .values_at = heads * keys + head * values,
                  .head_dim = a.head_dim,
                  .value_stride = round_up(a.head_dim, kPanel),
                  .bf16 = bf16_};
}

}  // namespace freehold
