// Keys and values that rows of single tokens will attend to in their next layer, brought from memory while their linear
// layers keep the multipliers busy.
#pragma once

#include <cstddef>

#include "kernels.h"
#include "kv_pool.h"
#include "model.h"
#include "step.h"

namespace freehold {

class KvFetcher : public Background {
  public:
    // Fetches nothing.
    KvFetcher() = default;
    // Of the rows with tokens within `tokens`, in their order, at most `most_bytes`.
    KvFetcher(const KvPool& kv, const AttentionShape& shape, int layer, const Step& step, TokenSpan tokens,
              std::size_t most_bytes);

  private:
    // To the next row of a single token, or the end.
    void begin_row(std::size_t row);
    // To the next bytes: a layer's part of a block, or what is used of a head's part of the last block.
    void advance();

    const KvPool* kv_ = nullptr;
    const AttentionShape* shape_ = nullptr;
    const Step* step_ = nullptr;
    int layer_ = 0;
    int end_token_ = 0;
    std::size_t left_bytes_ = 0;
    std::size_t row_ = 0;
    int pos_ = 0;   // of the row: what comes before is fetched
    int part_ = 0;  // of the row's last block: each head's keys and values
};

}  // namespace freehold
