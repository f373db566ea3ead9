// From logits to a token id: the native twin of `freehold.sample.sampler`, id for id.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace freehold {

struct SamplingRules {
    double temperature = 0.0;
    double top_p = 1.0;
    double min_p = 0.0;
    std::int64_t top_k = 0;
    std::uint64_t seed = 0;
    std::uint32_t choice = 0;
};

// Buffers of one sampling thread, as long as the vocabulary.
struct SamplerScratch {
    explicit SamplerScratch(int vocab_size);
    std::vector<std::uint64_t> keys;
    std::vector<std::uint64_t> spare;
    std::vector<std::int32_t> ids;
};

// Picks the token that takes absolute position `pos`. Logits must be finite; `scan` describes them. `allowed` is a bit
// set over the vocabulary with at least one member, or null.
std::int32_t sample(const KernelTable& kernels, const float* logits, int vocab_size, const LogitScan& scan,
                    const SamplingRules& rules, std::uint32_t pos, const std::uint32_t* allowed,
                    SamplerScratch& scratch);

// The lowest id among the highest logits that `allowed` permits, and whether all logits are finite.
LogitScan scan_allowed(const float* logits, int vocab_size, const LogitScan& all, const std::uint32_t* allowed);

// Sum of SplitMix64 finalizers over (index, bits): the twin of `freehold.sample.digest`.
std::uint64_t digest_logits(const float* logits, int vocab_size);

}  // namespace freehold
