// Biases and penalties on a row of logits: the twin of `freehold.sample.adjust`, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

namespace freehold {

// What changes logits, the same at every position of an answer.
struct AdjustmentRules {
    double presence_penalty = 0.0;
    double frequency_penalty = 0.0;
    double repetition_penalty = 1.0;
    int num_prompt = 0;  // positions below hold the prompt
    std::vector<std::int32_t> bias_ids;
    std::vector<double> biases;

    bool has_penalties() const {
        return presence_penalty != 0.0 || frequency_penalty != 0.0 || repetition_penalty != 1.0;
    }
    bool changes_logits() const { return has_penalties() || !bias_ids.empty(); }
};

// All ids before a position, in two parts.
struct Context {
    const std::int32_t* known = nullptr;
    int num_known = 0;
    const std::int32_t* inputs = nullptr;
    int num_inputs = 0;
};

// Changes logits where they lie, and changes them back. Only ids that are biased or in the context are touched.
class Adjuster {
  public:
    explicit Adjuster(int vocab_size);

    void apply(float* logits, const AdjustmentRules& rules, const Context& context);
    void undo(float* logits);

  private:
    struct Touched {
        std::int32_t id;
        float original;
        double value;
        int count;  // in the answer
        bool used;  // in prompt or answer
    };

    Touched& touch(const float* logits, std::int32_t id);

    std::vector<std::int32_t> place_;  // by id: one more than its index in touched_, 0 if it isn't there
    std::vector<Touched> touched_;
};

}  // namespace freehold
