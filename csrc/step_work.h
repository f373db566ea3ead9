// What a step has to read and compute at the least: the measure of its phases' times.
#pragma once

#include "kv_pool.h"
#include "model.h"
#include "profile.h"
#include "step.h"

namespace freehold {

// `num_logits` inputs need logits.
void add_step_work(const Model& model, const KvPool& kv, const Step& step, int num_logits, Profile& profile);

}  // namespace freehold
