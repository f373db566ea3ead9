// From logits to a token id: the native twin of `freehold.sample.sampler`, id for id.
#pragma once

#include <cstdint>
#include <vector>

#include "adjust.h"
#include "kernels.h"

namespace freehold {

struct SamplingRules : AdjustmentRules {
    double temperature = 0.0;
    double top_p = 1.0;
    double min_p = 0.0;
    std::int64_t top_k = 0;
    std::uint64_t seed = 0;
    std::uint32_t choice = 0;
    std::int64_t min_end_pos = 0;  // below this position, `stop_ids` may not be sampled
    std::vector<std::int32_t> stop_ids;
};

// What decides about one id besides rules and logits.
struct SamplePlace {
    std::uint32_t pos = 0;                   // that the id takes
    const std::uint32_t* allowed = nullptr;  // a bit set over the vocabulary, or all
    Context context;                         // used by penalties only
};

// Buffers of one sampling thread, as long as the vocabulary.
struct SamplerScratch {
    explicit SamplerScratch(int vocab_size);
    std::vector<std::uint64_t> keys;
    std::vector<std::uint64_t> spare;
    std::vector<std::int32_t> ids;
    std::vector<std::uint32_t> mask;      // a bit a token
    std::vector<std::int32_t> likeliest;  // few
    Adjuster adjuster;
    std::size_t num_bytes() const;
};

// Picks a token. Logits must be finite, and `scan` describes them; they are changed meanwhile, and back again. The
// place's `allowed` has a member.
std::int32_t sample(const KernelTable& kernels, float* logits, int vocab_size, const LogitScan& scan,
                    const SamplingRules& rules, const SamplePlace& place, SamplerScratch& scratch);

}  // namespace freehold
