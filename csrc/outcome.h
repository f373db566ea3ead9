// What follows the forward pass: logits of the inputs that need them, digests, log probabilities, sampling, and the
// rows' results. Logits are computed some inputs at a time, in scratch, and gone afterwards.
#pragma once

#include <vector>

#include "forward.h"

namespace freehold {

class Outcome {
  public:
    Outcome(const Step& step, int vocab_size, const KernelTable& kernels);

    // The inputs of the batch whose logits are wanted, ascending.
    const std::vector<int>& tokens() const { return tokens_; }
    // Called by one thread, then by every thread of the team alike. The first logits, for which no mask is needed.
    void begin(Forward& forward, const Scratch& scratch, int thread);
    // Everything else; `begun` if `begin` has run. `masks` are those of deferred rows, whole.
    void run(Forward& forward, const Scratch& scratch, Team& team, std::vector<SamplerScratch>& samplers,
             const Masks& masks, bool begun, int thread);
    // Cuts drafts at the first that differs, and gathers the rows' results.
    std::vector<RowOutput> results();

  private:
    // One input whose logits are needed.
    struct Target {
        int row;
        int input;  // in the row
    };
    struct Sampled {
        bool allowed = true;  // something was
        std::int32_t token_id = 0;
        std::uint64_t digest = 0;
        TokenLogprobs logprobs;
    };

    int count_from(const Scratch& scratch, int begin) const;
    void take(const Target& target, float* logits, const Masks& masks, SamplerScratch& sampler);
    void sample_one(const Target& target, float* logits, const LogitScan& scan, const Masks& masks,
                    SamplerScratch& sampler);

    const Step& step_;
    int vocab_size_;
    const KernelTable& kernels_;
    std::vector<Target> targets_;
    std::vector<int> tokens_;                    // of the targets, in the batch
    std::vector<std::vector<Sampled>> sampled_;  // by row
    std::vector<std::vector<TokenLogprobs>> scored_;
    std::vector<std::vector<float>> logits_;     // by row, of all inputs if wanted
    std::vector<std::vector<char>> not_finite_;  // by row and input, so that threads write apart
};

}  // namespace freehold
