// All layers' keys and values, in blocks of positions. A block is one contiguous range over all layers, so that
// copying, saving and restoring one is a single move. See kernels.h for the order inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels.h"
#include "matrix.h"
#include "model.h"

namespace freehold {

// From "f32", "bf16" or "int8". Throws std::invalid_argument.
KvFormat kv_format_named(const std::string& name);

class KvPool {
  public:
    KvPool() = default;
    KvPool(const Model& model, int num_blocks, int block_size, KvFormat format);

    int num_blocks() const { return num_blocks_; }
    KvFormat format() const { return format_; }
    int block_size() const { return block_size_; }
    // Bytes of keys and values of one position and layer.
    double position_bytes(const AttentionShape& a) const;
    std::size_t block_bytes() const { return block_bytes_; }
    std::uint8_t* block(int block_id) const {
        return region_.data() + block_bytes_ * static_cast<std::size_t>(block_id);
    }

    // Bytes of a layer in a block, which stand side by side: head by head, keys and then values.
    std::size_t layer_bytes(const AttentionShape& shape) const;
    KvView view(const AttentionShape& shape, int layer, int kv_head, const std::int32_t* block_ids) const;

  private:
    // A view without a place.
    KvView shape_of(const AttentionShape& shape) const;

    int num_blocks_ = 0;
    int block_size_ = 0;
    KvFormat format_ = KvFormat::bf16;
    std::size_t block_bytes_ = 0;
    std::vector<std::size_t> layer_at_;  // in a block
    Region region_;
};

}  // namespace freehold
