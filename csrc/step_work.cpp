#include "step_work.h"

#include <algorithm>
#include <initializer_list>

#include "attention_plan.h"

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

PhaseWork attention_work(const AttentionShape& a, double bytes_per_position, const Step& step,
                         const std::vector<TokenRun>& runs) {
    PhaseWork work;
    for (const TokenRun& run : runs) {
        const StepRow& row = step.rows[static_cast<std::size_t>(run.row)];
        const int start_pos = row.start_pos + run.first_token - row.first_token;
        const int end_pos = start_pos + run.num_tokens;
        const int first_pos = start_pos >= a.window ? start_pos - a.window + 1 : 0;
        double seen = 0.0;
        for (int pos = start_pos; pos < end_pos; ++pos) seen += std::min(pos + 1, a.window);
        work.kv_bytes += bytes_per_position * (end_pos - first_pos);
        work.operations += 4.0 * seen * a.query_size();
    }
    return work;
}

}  // namespace

void add_step_work(const Model& model, const KvPool& kv, const Step& step, const std::vector<int>& kept,
                   Profile& profile) {
    const std::vector<TokenRun> rows = whole_rows(step), kept_runs = runs_of(step, kept);
    const auto num_kept = static_cast<int>(kept.size());
    for (const Layer& layer : model.layers) {
        const bool last = &layer == &model.layers.back();
        const auto num_tokens = static_cast<int>(step.token_ids.size());
        profile.add_work(Phase::qkv, linear_work({&layer.q, &layer.k, &layer.v}, num_tokens));
        if (last && kept.empty()) continue;
        const int num_leaving = last ? num_kept : num_tokens;
        profile.add_work(Phase::attention, attention_work(layer.attention, kv.position_bytes(layer.attention), step,
                                                          last ? kept_runs : rows));
        profile.add_work(Phase::o, linear_work({&layer.o}, num_leaving));
        profile.add_work(Phase::gate_up, linear_work({&layer.gate, &layer.up}, num_leaving));
        profile.add_work(Phase::down, linear_work({&layer.down}, num_leaving));
    }
    if (!kept.empty()) profile.add_work(Phase::head, linear_work({&model.output()}, num_kept));
}

}  // namespace freehold
