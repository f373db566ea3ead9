// One step as data: what the driver runs and what comes back. Mirrors freehold.backends.base.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <vector>

#include "logprobs.h"
#include "sampler.h"

namespace freehold {

// Consecutive inputs of a step.
struct TokenSpan {
    int begin, end;
    int size() const { return end - begin; }
};

struct FedBy {
    std::int64_t step_id;
    int row;
};

// Inputs, blocks, context and ids to score are ranges of the step's flat arrays; a fed row's first input is filled in
// when the step runs.
struct StepRow {
    int start_pos = 0;
    int first_token = 0;
    int num_tokens = 0;
    int first_block = 0;
    int num_blocks = 0;
    int first_context = 0;
    int num_context = 0;  // ids at the positions before the row's inputs; 0 unless there are penalties
    int first_scored = 0;
    int num_scored = 0;  // ids that follow the first inputs and whose log probabilities are wanted
    int num_scored_top = 0;
    int num_sampled = 0;
    std::optional<int> num_logprobs;  // likeliest ids to report beside each sampled one
    bool want_digests = false;
    bool want_logits = false;
    bool deferred = false;
    std::optional<FedBy> fed_by;
    SamplingRules rules;
};

struct Step {
    std::int64_t id = 0;
    std::vector<StepRow> rows;
    std::vector<std::int32_t> token_ids;
    std::vector<std::int32_t> block_ids;
    std::vector<std::int32_t> context_ids;
    std::vector<std::int32_t> scored_ids;
};

// Row → bit sets of the tokens that it may sample, one after the other for each of its samples.
using Masks = std::map<int, std::vector<std::uint32_t>>;

struct RowOutput {
    std::vector<std::int32_t> token_ids;
    std::vector<std::uint64_t> digests;
    std::vector<TokenLogprobs> logprobs;
    std::vector<TokenLogprobs> scored;
    std::vector<float> logits;  // (inputs, vocabulary) if wanted
    bool finite = true;
};

struct StepOutput {
    std::vector<RowOutput> rows;
    double run_s = 0.0;
};

// A step that cannot run; the device is intact.
class StepRefused : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace freehold
