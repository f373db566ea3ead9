// The parts of a layer beside attention, each for some rows and, where threads share rows out, for some of the outputs.
// What they leave for the same thread lies in its own scratch.
#pragma once

#include <initializer_list>
#include <vector>

#include "kernels.h"
#include "kv_pool.h"
#include "model.h"
#include "profile.h"
#include "scratch.h"
#include "step.h"

namespace freehold {

// Heads of queries, keys or values whose outputs fill whole strips.
struct HeadUnit {
    enum class Kind { query, key, value } kind;
    const Matrix* matrix;
    int first_head, num_heads;
    int strip_begin, strip_end;

    const std::uint8_t* weights() const {
        return matrix->data + matrix->strip_bytes() * static_cast<std::size_t>(strip_begin);
    }
};

// Normed rows that enter the projections to heads.
struct HeadInputs {
    Activations coarse, fine;

    const Activations& of(const Matrix& matrix) const { return matrix.fine_activations ? fine : coarse; }
};

class LayerOps {
  public:
    LayerOps(Model& model, const KvPool& kv, const Scratch& scratch, const KernelTable& kernels, bool int8,
             bool bf16_dot);

    // Called by one thread, before all others.
    void prepare(const Step& step, Profile* profile);
    Profile* profile() const { return profile_; }
    const std::vector<HeadUnit>& units(int layer) const { return units_[static_cast<std::size_t>(layer)]; }

    // What the thread's linear layers fetch meanwhile; null: nothing.
    void set_background(int thread, Background* background) {
        backgrounds_[static_cast<std::size_t>(thread)] = background;
    }

    void embed(int thread, int token) const;
    // Moves rows of the residual stream to the front: `tokens`, ascending. What follows counts them alone.
    void keep(const std::vector<int>& tokens) const;
    // Inputs of the next linear layer, in the thread's scratch: normed rows of the residual stream…
    HeadInputs normed_for_heads(int thread, int layer, TokenSpan tokens) const;
    Activations normed_for_mlp(int thread, int layer, TokenSpan tokens) const;
    Activations normed_for_logits(int thread, TokenSpan rows) const;
    // … or what attention gave.
    Activations attended(int thread, int layer, TokenSpan tokens) const;

    // `next` is what the thread will read after these weights. Heads go where attention finds them.
    void heads(int thread, int layer, const HeadUnit& unit, const HeadInputs& inputs, TokenSpan tokens,
               const std::uint8_t* next) const;
    // Strips of the residual stream.
    void add_attended(int thread, int layer, const Activations& input, TokenSpan tokens, int strip_begin, int strip_end,
                      const std::uint8_t* next) const;
    // silu(gate) * up, at most kChunkStrips of it.
    void gate_up(int thread, int layer, const Activations& input, TokenSpan tokens, int strip_begin, int strip_end,
                 const std::uint8_t* next) const;
    // What gate_up left of all of a row's outputs.
    Activations gated(int thread, int layer, TokenSpan tokens) const;
    void add_mlp(int thread, int layer, const Activations& input, TokenSpan tokens, int strip_begin, int strip_end,
                 const std::uint8_t* next) const;
    void logits(int thread, const Activations& input, int count, int strip_begin, int strip_end,
                const std::uint8_t* next) const;

  private:
    // Of matrices that share their inputs' scales.
    Activations input_of(int thread, int stride, std::initializer_list<const Matrix*> matrices) const;
    Activations inner_of(const Layer& layer) const;
    Activations normed(int thread, int layer, const std::vector<float>& weight,
                       std::initializer_list<const Matrix*> matrices, TokenSpan rows) const;
    void norm(const std::vector<float>& weight, int token, const Activations& out, int row) const;
    // What matrices read of a row that enters them: its numbers and scales if any, or records with all that.
    struct Reads {
        bool numbers = false, records = false;
    };
    Reads reads_of(std::initializer_list<const Matrix*> matrices) const;
    void quantize(Reads reads, const Activations& rows, int row) const;
    void fetch_places(int layer, const HeadUnit& unit, TokenSpan tokens) const;
    // `heads`: (tokens, stride), whose first is the unit's first head.
    void place(int layer, const HeadUnit& unit, TokenSpan tokens, float* heads, int stride) const;
    void place_queries(const AttentionShape& shape, int head, TokenSpan tokens, const HeadRows& queries) const;
    // Calls each(run, its first position, its request's blocks) for all runs of `tokens` within tiles of positions.
    template <class Each>
    void for_each_run(TokenSpan tokens, Each&& each) const;
    // out[0 .. count, strips] (+)= input * weights; `out` is where the first of these strips goes.
    struct Strips {
        int begin, end;
    };
    struct Output {
        float* at;
        int stride;
        bool add;
    };
    void linear(int thread, const Matrix& matrix, Strips strips, const Activations& input, int count,
                const Output& output, const std::uint8_t* next) const;

    Model& model_;
    const KvPool& kv_;
    const Scratch& scratch_;
    const KernelTable& kernels_;
    bool int8_;
    bool bf16_dot_;
    std::vector<std::vector<HeadUnit>> units_;  // by layer

    std::vector<Background*> backgrounds_;  // by thread
    const Step* step_ = nullptr;
    Profile* profile_ = nullptr;
    // Consecutive tokens of a request within one tile of positions.
    struct TileRun {
        TokenSpan tokens;
        int first_pos;
        const std::int32_t* block_ids;
    };
    std::vector<TileRun> runs_;
    std::vector<int> token_run_;                     // that each token belongs to
    std::vector<std::vector<const float*>> angles_;  // by RopeTable, of each token
};

}  // namespace freehold
