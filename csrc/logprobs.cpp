#include "logprobs.h"

#include <algorithm>
#include <numeric>

#include "mathx.h"

namespace freehold {
namespace {

constexpr int kChunk = 2048;      // ids looked at before the threshold is raised
constexpr int kMaxInserted = 64;  // longer lists are selected and sorted at once

// The likeliest ids in order, first in `ids`.
void find_top(const KernelTable& kernels, const float* logits, int vocab_size, int num_top,
              std::vector<std::int32_t>& ids, std::vector<std::int32_t>& top) {
    const auto likelier = [&](std::int32_t a, std::int32_t b) {
        return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    };
    if (num_top > kMaxInserted) {
        const auto begin = ids.begin();
        std::iota(begin, begin + vocab_size, 0);
        std::partial_sort(begin, begin + num_top, begin + vocab_size, likelier);
        top.assign(begin, begin + num_top);
        return;
    }
    const auto wanted = static_cast<std::size_t>(num_top);
    float threshold = -__builtin_inff();
    for (int first = 0; first < vocab_size; first += kChunk) {
        const int count = kernels.above(logits, first, std::min(first + kChunk, vocab_size), threshold, ids.data());
        for (int i = 0; i < count; ++i) {
            const std::int32_t id = ids[static_cast<std::size_t>(i)];
            if (top.size() == wanted && !(logits[id] > logits[top.back()])) continue;  // ids ascend
            if (top.size() == wanted) top.pop_back();
            top.insert(std::upper_bound(top.begin(), top.end(), id, likelier), id);
        }
        if (top.size() == wanted) threshold = logits[top.back()];
    }
}

}  // namespace

TokenLogprobs logprobs_of(const KernelTable& kernels, const float* logits, int vocab_size, const LogitScan& scan,
                          std::int32_t token_id, int num_top, std::vector<std::int32_t>& spare) {
    const double log_sum = log_fixed(kernels.exp_sum(logits, vocab_size, scan.highest));
    const auto logprob = [&](std::int32_t id) {
        return (static_cast<double>(logits[id]) - static_cast<double>(scan.highest)) - log_sum;
    };
    TokenLogprobs found;
    found.logprob = logprob(token_id);
    found.rank = kernels.rank(logits, vocab_size, token_id);
    if (num_top > 0) {
        std::vector<std::int32_t> top;
        find_top(kernels, logits, vocab_size, std::min(num_top, vocab_size), spare, top);
        for (const std::int32_t id : top) found.top.emplace_back(id, logprob(id));
    }
    return found;
}

}  // namespace freehold
