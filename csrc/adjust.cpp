#include "adjust.h"

#include <algorithm>
#include <limits>

namespace freehold {

Adjuster::Adjuster(int vocab_size) : place_(static_cast<std::size_t>(vocab_size)) {}

Adjuster::Touched& Adjuster::touch(const float* logits, std::int32_t id) {
    std::int32_t& place = place_[static_cast<std::size_t>(id)];
    if (place == 0) {
        touched_.push_back({id, logits[id], static_cast<double>(logits[id]), 0, false});
        place = static_cast<std::int32_t>(touched_.size());
    }
    return touched_[static_cast<std::size_t>(place - 1)];
}

void Adjuster::apply(float* logits, const AdjustmentRules& rules, const Context& context) {
    for (std::size_t i = 0; i < rules.bias_ids.size(); ++i) touch(logits, rules.bias_ids[i]).value += rules.biases[i];
    if (rules.has_penalties()) {
        const auto use = [&](const std::int32_t* ids, int count, int first_pos) {
            for (int i = 0; i < count; ++i) {
                Touched& touched = touch(logits, ids[i]);
                touched.used = true;
                touched.count += first_pos + i >= rules.num_prompt ? 1 : 0;
            }
        };
        use(context.known, context.num_known, 0);
        use(context.inputs, context.num_inputs, context.num_known);
    }
    for (const Touched& touched : touched_) {
        double x = touched.value;
        if (touched.used) x = x > 0.0 ? x / rules.repetition_penalty : x * rules.repetition_penalty;
        if (touched.count > 0) {
            x = x - rules.frequency_penalty * static_cast<double>(touched.count);
            x = x - rules.presence_penalty;
        }
        constexpr double kLargest = std::numeric_limits<float>::max();
        logits[touched.id] = static_cast<float>(std::clamp(x, -kLargest, kLargest));
    }
}

void Adjuster::undo(float* logits) {
    for (const Touched& touched : touched_) {
        logits[touched.id] = touched.original;
        place_[static_cast<std::size_t>(touched.id)] = 0;
    }
    touched_.clear();
}

}  // namespace freehold
