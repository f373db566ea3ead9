// The forward pass of one step over a whole batch, run by all threads of the team through the same code.
//
// Many rows: a thread takes a block of rows through all that lies between one layer's attention and the next one's, so
// that what it computes on the way stays in its cache. Few rows: threads share out the outputs of each linear layer, so
// that the weights are read once, each thread its own run of them. Results are the same.
#pragma once

#include "attention.h"
#include "layer_ops.h"

namespace freehold {

class Forward {
  public:
    Forward(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, Team& team, bool int8,
            bool bf16_dot);

    // Lays out the work of a step; its inputs are known by now. `profile`, if any, times it. Called by one thread.
    void prepare(const Step& step, Profile* profile);
    // Embeds the inputs and runs all layers: the residual stream is in scratch afterwards. Called by every thread.
    void layers(int thread);
    // Logits of the inputs `tokens[0 .. count)`, in scratch. Called by every thread.
    void logits(int thread, const int* tokens, int count);
    Profile* profile() const { return ops_.profile(); }

  private:
    void layers_by_rows(int thread);
    void layers_by_outputs(int thread);
    void rows_into_attention(int thread, int layer, TokenSpan tokens);
    void rows_out_of_attention(int thread, int layer, TokenSpan tokens);
    void heads_by_units(int thread, int layer);
    // Calls part(strip_begin, strip_end, what the thread reads next) for each share of a matrix's strips. `after` is
    // what comes after all of them.
    template <class Part>
    void share_strips(int thread, const Matrix& matrix, int most_each, const std::uint8_t* after, Part&& part);
    const std::uint8_t* first_heads(int thread, int layer) const;
    const std::uint8_t* first_strips(int thread, const Matrix& matrix) const;

    const Model& model_;
    Team& team_;
    LayerOps ops_;
    Attention attention_;
    int num_blocks_ = 0;  // of rows, that threads take through layers; 0: they share outputs
};

}  // namespace freehold
