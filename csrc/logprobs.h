// How likely tokens are: the twin of `freehold.sample.logprobs`, bit for bit.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels.h"

namespace freehold {

struct TokenLogprobs {
    double logprob = 0.0;
    std::int32_t rank = 0;                             // 1 is the likeliest
    std::vector<std::pair<std::int32_t, double>> top;  // the likeliest first
};

// Of one row of finite logits that `scan` describes. `spare` is as long as the vocabulary.
TokenLogprobs logprobs_of(const KernelTable& kernels, const float* logits, int vocab_size, const LogitScan& scan,
                          std::int32_t token_id, int num_top, std::vector<std::int32_t>& spare);

}  // namespace freehold
