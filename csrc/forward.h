// The forward pass of one step over a whole batch, run by all threads of the team through the same code.
#pragma once

#include <vector>

#include "attention_plan.h"
#include "kernels.h"
#include "kv_pool.h"
#include "model.h"
#include "scratch.h"
#include "step.h"
#include "threads/team.h"

namespace freehold {

struct LinearJob {
    const Matrix* matrix;
    float* out;
    int out_stride;
    bool add;
};

class Forward {
  public:
    Forward(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team, bool int8);

    // Lays out the work of a step; its inputs are known by now. Called by one thread.
    void prepare(const Step& step);
    // Embeds the inputs and runs all layers: the residual stream is in scratch afterwards. Called by every thread.
    void layers(int thread);
    // Logits of the inputs `tokens[0 .. count)`, in scratch. Called by every thread.
    void logits(const int* tokens, int count);

  private:
    void project(const Layer& layer, const Activations& normed);
    void place_token(const Layer& layer, int layer_index, int token);
    void attend(const Layer& layer, int layer_index, int thread);
    AttendCall attend_call(const Layer& layer, int layer_index, const AttentionItem& item) const;
    void finish(const AttendCall& call, const AttentionItem& item, const float* state) const;
    void norm(const std::vector<float>& weight, const Activations& out, int token, int row, bool quantize);
    void linear(const Activations& input, int num_rows, std::initializer_list<LinearJob> jobs);
    int group_of(std::initializer_list<const Matrix*> matrices) const;
    bool quantizes(std::initializer_list<const Matrix*> matrices) const;

    Model& model_;
    const KvPool& kv_;
    const Scratch& scratch_;
    const KernelTable& kernels_;
    Team& team_;
    bool int8_;
    bool bf16_dot_;  // attention rounds queries and weights to bf16

    const Step* step_ = nullptr;
    int num_tokens_ = 0;
    std::vector<int> token_row_;   // row of the step that each token belongs to
    std::vector<int> layer_plan_;  // index into plans_
    std::vector<AttentionPlan> plans_;
    std::vector<const AttentionShape*> plan_shapes_;
};

}  // namespace freehold
