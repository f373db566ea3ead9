#include "step_work.h"

#include <algorithm>
#include <initializer_list>

namespace freehold {
namespace {

PhaseWork linear_work(std::initializer_list<const Matrix*> matrices, int num_rows) {
    PhaseWork work;
    for (const Matrix* m : matrices) {
        work.weight_bytes += static_cast<double>(m->num_bytes());
        work.operations += 2.0 * m->num_outputs * m->num_inputs * num_rows;
    }
    return work;
}

PhaseWork attention_work(const AttentionShape& a, double bytes_per_position, const Step& step) {
    PhaseWork work;
    for (const StepRow& row : step.rows) {
        const int end_pos = row.start_pos + row.num_tokens;
        const int first_pos = row.start_pos >= a.window ? row.start_pos - a.window + 1 : 0;
        double seen = 0.0;
        for (int pos = row.start_pos; pos < end_pos; ++pos) seen += std::min(pos + 1, a.window);
        work.kv_bytes += bytes_per_position * (end_pos - first_pos);
        work.operations += 4.0 * seen * a.query_size();
    }
    return work;
}

}  // namespace

void add_step_work(const Model& model, const KvPool& kv, const Step& step, int num_logits, Profile& profile) {
    const auto num_tokens = static_cast<int>(step.token_ids.size());
    for (const Layer& layer : model.layers) {
        profile.add_work(Phase::qkv, linear_work({&layer.q, &layer.k, &layer.v}, num_tokens));
        profile.add_work(Phase::attention, attention_work(layer.attention, kv.position_bytes(layer.attention), step));
        profile.add_work(Phase::o, linear_work({&layer.o}, num_tokens));
        profile.add_work(Phase::gate_up, linear_work({&layer.gate, &layer.up}, num_tokens));
        profile.add_work(Phase::down, linear_work({&layer.down}, num_tokens));
    }
    profile.add_work(Phase::head, linear_work({&model.output()}, num_logits));
}

}  // namespace freehold
