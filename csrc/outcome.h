// What follows the forward pass: logits of the inputs that need them, digests, sampling, and the rows' results.
#pragma once

#include <functional>
#include <vector>

#include "forward.h"

namespace freehold {

// Computes logits and samples all rows of a step. Deferred rows keep copies of their logits until `finish_deferred`.
class Outcome {
  public:
    Outcome(const Step& step, int vocab_size, const KernelTable& kernels);

    // Called by one thread, then by every thread of the team alike.
    void run(Forward& forward, const Scratch& scratch, Team& team, std::vector<SamplerScratch>& samplers, int thread);
    // Samples a deferred row. Called by one thread.
    void finish_deferred(int row, const std::uint32_t* allowed, SamplerScratch& sampler);
    // Cuts drafts at the first that differs, and gathers the rows' results.
    std::vector<RowOutput> results();

  private:
    // One input whose logits are needed.
    struct Target {
        int token;  // in the batch
        int row;
        int input;     // in the row
        int sample;    // which of the row's samples it gives
        bool sampled;  // `sample` is meaningful
    };
    struct Sampled {
        std::int32_t token_id = 0;
        std::uint64_t digest = 0;
    };

    void take(const Target& target, const float* logits, SamplerScratch& sampler);

    const Step& step_;
    int vocab_size_;
    const KernelTable& kernels_;
    std::vector<Target> targets_;
    std::vector<int> tokens_;                    // of the targets
    std::vector<std::vector<Sampled>> sampled_;  // by row
    std::vector<std::vector<float>> logits_;     // by row: all inputs if wanted, the sampled ones if deferred
    std::vector<std::vector<char>> not_finite_;  // by row and target, so that threads write apart
};

}  // namespace freehold
