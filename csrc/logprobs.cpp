#include "logprobs.h"

#include "likeliest.h"
#include "mathx.h"

namespace freehold {
TokenLogprobs logprobs_of(const KernelTable& kernels, const float* logits, int vocab_size, const LogitScan& scan,
                          std::int32_t token_id, int num_top, std::vector<std::int32_t>& spare) {
    const double log_sum = log_fixed(kernels.exp_sum(logits, vocab_size, scan.highest));
    const auto logprob = [&](std::int32_t id) {
        return (static_cast<double>(logits[id]) - static_cast<double>(scan.highest)) - log_sum;
    };
    TokenLogprobs found;
    found.logprob = logprob(token_id);
    found.rank = token_id == scan.highest_id ? 1 : kernels.rank(logits, vocab_size, token_id);
    if (num_top > 0) {
        std::vector<std::int32_t> top;
        find_likeliest(kernels, logits, vocab_size, nullptr, num_top, spare, top);
        for (const std::int32_t id : top) found.top.emplace_back(id, logprob(id));
    }
    return found;
}

}  // namespace freehold
