// Attention of one layer over a whole batch, by all threads of the team.
#pragma once

#include <vector>

#include "attention_plan.h"
#include "kernels.h"
#include "kv_pool.h"
#include "model.h"
#include "profile.h"
#include "row_blocks.h"
#include "scratch.h"
#include "step.h"
#include "threads/team.h"

namespace freehold {

class Attention {
  public:
    // `bf16_dot`: queries and weights are rounded to bf16.
    Attention(const Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team,
              bool bf16_dot);

    // Cuts a step's work: that of `blocks` of rows, or of all rows if there are none. In the last layer only the inputs
    // `kept` attend, given in ascending order, which is that of their results. Called by one thread.
    void prepare(const Step& step, const std::vector<RowBlock>& blocks, const std::vector<int>& kept);
    // From the queries in scratch and the layer's keys and values to `attended`. Called by every thread.
    void run(int thread, int layer, Profile* profile) const;
    // The same for a block of rows, all of whose inputs attend. By one thread.
    void run_block(int thread, int layer, int block, Profile* profile) const;

  private:
    // What one thread does at a time: some pieces of an item.
    struct Work {
        int item;
        int piece;  // counted from the item's first
    };

    KvView kv_of(int layer, const AttentionItem& item) const;
    AttendCall call_of(int layer, const AttentionItem& item) const;
    std::size_t plan_index(int layer) const { return layer_plan_[static_cast<std::size_t>(layer)]; }
    void run_whole_items(int thread, int layer, const AttentionPlan& plan, Profile* profile) const;
    void run_item(int thread, int layer, const AttentionPlan& plan, int number) const;
    void run_pieces(int thread, int layer, const AttentionPlan& plan, Profile* profile) const;
    void attend(int layer, const AttentionPlan& plan, AttendCall& call, Work now, Work next, float* states) const;
    void finish(const AttendCall& call, const AttentionItem& item, const float* states) const;

    const Model& model_;
    const KvPool& kv_;
    const Scratch& scratch_;
    const KernelTable& kernels_;
    Team& team_;
    bool bf16_dot_;

    const Step* step_ = nullptr;
    std::vector<std::size_t> layer_plan_;  // index into plans_
    std::vector<AttentionPlan> plans_;
    std::vector<std::vector<AttentionPlan>> block_plans_;  // the same by block
    std::vector<const AttentionShape*> plan_shapes_;
    AttentionPlan last_plan_;  // of the last layer
};

}  // namespace freehold
