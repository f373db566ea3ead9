// The forward pass of one step over a whole batch, run by all threads of the team through the same code.
//
// Many rows: a thread takes a block of rows from one layer's attention to the next one's, so that what it computes on
// the way stays in its cache. A block waits for nothing but the keys and values of its rows' earlier tokens. Few rows:
// threads share out the outputs of each linear layer, so that the weights are read once, each thread its own run of
// them. Results are the same.
//
// Beyond the keys and values of the last layer, only the inputs whose logits are wanted go on.
#pragma once

#include "attention.h"
#include "kv_fetcher.h"
#include "layer_ops.h"
#include "row_blocks.h"

namespace freehold {

class Forward {
  public:
    Forward(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team, bool int8,
            bool bf16_dot);

    // Lays out the work of a step; its inputs are known by now. `kept` are the inputs whose logits are wanted,
    // ascending. `profile`, if any, times it. Called by one thread.
    void prepare(const Step& step, const std::vector<int>& kept, Profile* profile);
    // Embeds the inputs and runs all layers. Called by every thread.
    void layers(int thread);
    // Logits of the kept inputs [begin, begin + count), in scratch. Called by every thread.
    void logits(int thread, int begin, int count);
    Profile* profile() const { return ops_.profile(); }

  private:
    TokenSpan kept_block(int number) const;
    bool takes_blocks(int num_rows) const;
    bool keeps_all() const { return kept_.size() == static_cast<std::size_t>(num_rows_); }
    TokenSpan all() const { return {0, num_rows_}; }
    // A block's way to keys and values of layer `stage`; the stage after them ends the last layer.
    void run_stage(int thread, int block, int stage);
    bool stage_is_ready(int block, int stage) const;
    void enter_by_rows(int thread, int layer, TokenSpan tokens);
    void leave_by_rows(int thread, int layer, TokenSpan tokens);
    void enter_by_outputs(int thread, int layer);
    void leave_by_outputs(int thread, int layer, TokenSpan tokens);
    void last_layer(int thread);
    // Calls part(strip_begin, strip_end, what the thread reads next) for each share of a matrix's strips. `after` is
    // what comes after all of them.
    template <class Part>
    void share_strips(int thread, const Matrix& matrix, int most_each, const std::uint8_t* after, Part&& part);
    const std::uint8_t* first_heads(int thread, int layer) const;
    const std::uint8_t* first_strips(int thread, const Matrix& matrix) const;

    const Model& model_;
    const KvPool& kv_;
    Team& team_;
    LayerOps ops_;
    Attention attention_;
    TokenCost cost_;
    std::size_t most_fetched_bytes_;  // of a block's keys and values, while it is in a layer
    int num_rows_ = 0;
    std::vector<RowBlock> blocks_;  // none: threads share outputs
    Chains chains_;                 // of these blocks
    const Step* step_ = nullptr;
    std::vector<int> kept_;
    int num_kept_blocks_ = 0;  // the same for the kept inputs, behind the last layer's attention
};

}  // namespace freehold
