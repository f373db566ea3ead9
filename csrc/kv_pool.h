// All layers' keys and values, in blocks of positions. A block is one contiguous range over all layers, so that
// copying, saving and restoring one is a single move. See kernels.h for the order inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "matrix.h"
#include "model.h"

namespace freehold {

class KvPool {
  public:
    KvPool() = default;
    KvPool(const Model& model, int num_blocks, int block_size, bool bf16);

    int num_blocks() const { return num_blocks_; }
    bool bf16() const { return bf16_; }
    int block_size() const { return block_size_; }
    // Bytes of keys and values of one position and layer.
    double position_bytes(const AttentionShape& a) const;
    std::size_t block_bytes() const { return block_bytes_; }
    std::uint8_t* block(int block_id) const {
        return region_.data() + block_bytes_ * static_cast<std::size_t>(block_id);
    }

    KvView view(const AttentionShape& shape, int layer, int kv_head, const std::int32_t* block_ids) const;

  private:
    int num_blocks_ = 0;
    int block_size_ = 0;
    bool bf16_ = true;
    std::size_t block_bytes_ = 0;
    std::vector<std::size_t> layer_at_;  // in a block
    Region region_;
};

}  // namespace freehold
