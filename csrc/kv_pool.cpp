#include "kv_pool.h"

#include <stdexcept>

namespace freehold {
namespace {

struct HeadBytes {
    std::size_t keys, values;
};

// Of one key/value head in a block.
HeadBytes head_bytes(const KvView& kv) {
    const auto num_tiles = static_cast<std::size_t>(kv.block_size / kTilePositions);
    return {num_tiles * kv.key_tile_bytes(), num_tiles * kv.value_tile_bytes()};
}

}  // namespace

KvFormat kv_format_named(const std::string& name) {
    if (name == "f32") return KvFormat::f32;
    if (name == "bf16") return KvFormat::bf16;
    if (name == "int8") return KvFormat::int8;
    throw std::invalid_argument("keys and values can't be " + name + ": f32, bf16 or int8");
}

KvPool::KvPool(const Model& model, int num_blocks, int block_size, KvFormat format)
    : num_blocks_(num_blocks), block_size_(block_size), format_(format) {
    for (const Layer& layer : model.layers) {
        layer_at_.push_back(block_bytes_);
        block_bytes_ += layer_bytes(layer.attention);
    }
    // In huge pages: attention jumps from block to block. A first touched block brings its neighbours in with it.
    region_ = Region(block_bytes_ * static_cast<std::size_t>(num_blocks), true);
}

KvView KvPool::shape_of(const AttentionShape& a) const {
    KvView kv{};
    kv.block_size = block_size_;
    kv.head_dim = a.head_dim;
    kv.value_stride = round_up(a.head_dim, kPanel);
    kv.format = format_;
    return kv;
}

std::size_t KvPool::layer_bytes(const AttentionShape& a) const {
    const HeadBytes bytes = head_bytes(shape_of(a));
    return static_cast<std::size_t>(a.num_kv_heads) * (bytes.keys + bytes.values);
}

double KvPool::position_bytes(const AttentionShape& a) const {
    return static_cast<double>(layer_bytes(a)) / block_size_;
}

KvView KvPool::view(const AttentionShape& a, int layer, int kv_head, const std::int32_t* block_ids) const {
    KvView kv = shape_of(a);
    const HeadBytes bytes = head_bytes(kv);
    kv.base = region_.data() + layer_at_[static_cast<std::size_t>(layer)];
    kv.block_bytes = block_bytes_;
    kv.block_ids = block_ids;
    kv.keys_at = static_cast<std::size_t>(kv_head) * (bytes.keys + bytes.values);
    kv.values_at = kv.keys_at + bytes.keys;
    return kv;
}

}  // namespace freehold
