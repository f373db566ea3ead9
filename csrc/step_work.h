// What a step has to read and compute at the least: the measure of its phases' times.
#pragma once

#include <vector>

#include "kv_pool.h"
#include "model.h"
#include "profile.h"
#include "step.h"

namespace freehold {

// `kept` are the inputs whose logits are wanted; the others end with the last layer's keys and values.
void add_step_work(const Model& model, const KvPool& kv, const Step& step, const std::vector<int>& kept,
                   Profile& profile);

}  // namespace freehold
