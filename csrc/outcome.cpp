#include "outcome.h"

#include <algorithm>
#include <cstring>

namespace freehold {

Outcome::Outcome(const Step& step, int vocab_size, const KernelTable& kernels)
    : step_(step), vocab_size_(vocab_size), kernels_(kernels) {
    const std::size_t num_rows = step.rows.size();
    sampled_.resize(num_rows);
    logits_.resize(num_rows);
    not_finite_.resize(num_rows);
    for (std::size_t index = 0; index < num_rows; ++index) {
        const StepRow& row = step.rows[index];
        const int first_sampled = row.num_tokens - row.num_sampled;
        const int first = row.want_logits ? 0 : first_sampled;
        const auto count = static_cast<std::size_t>(row.num_tokens - first);
        for (int input = first; input < row.num_tokens; ++input) {
            targets_.push_back({row.first_token + input, static_cast<int>(index), input - first, input - first_sampled,
                                input >= first_sampled});
            tokens_.push_back(row.first_token + input);
        }
        sampled_[index].resize(static_cast<std::size_t>(row.num_sampled));
        not_finite_[index].assign(count, 0);
        if (row.want_logits || row.deferred) logits_[index].resize(count * static_cast<std::size_t>(vocab_size));
    }
}

void Outcome::run(Forward& forward, const Scratch& scratch, Team& team, std::vector<SamplerScratch>& samplers,
                  int thread) {
    const auto total = static_cast<int>(targets_.size());
    for (int begin = 0; begin < total; begin += scratch.max_logit_rows()) {
        const int count = std::min(scratch.max_logit_rows(), total - begin);
        forward.logits(tokens_.data() + begin, count);
        team.for_each(count, [&](int i) {
            const float* logits = scratch.logits + static_cast<std::ptrdiff_t>(i) * scratch.logit_stride();
            take(targets_[static_cast<std::size_t>(begin + i)], logits, samplers[static_cast<std::size_t>(thread)]);
        });
    }
}

void Outcome::take(const Target& target, const float* logits, SamplerScratch& sampler) {
    const auto index = static_cast<std::size_t>(target.row);
    const StepRow& row = step_.rows[index];
    const LogitScan scan = kernels_.scan(logits, vocab_size_);
    not_finite_[index][static_cast<std::size_t>(target.input)] = scan.finite ? 0 : 1;
    if (!logits_[index].empty()) {
        const std::size_t size = static_cast<std::size_t>(vocab_size_);
        std::memcpy(logits_[index].data() + static_cast<std::size_t>(target.input) * size, logits,
                    size * sizeof(float));
    }
    if (!target.sampled) return;
    Sampled& sampled = sampled_[index][static_cast<std::size_t>(target.sample)];
    if (row.want_digests) sampled.digest = digest_logits(logits, vocab_size_);
    if (row.deferred || !scan.finite) return;
    const auto pos = static_cast<std::uint32_t>(row.start_pos + row.num_tokens - row.num_sampled + target.sample + 1);
    sampled.token_id = sample(kernels_, logits, vocab_size_, scan, row.rules, pos, nullptr, sampler);
}

void Outcome::finish_deferred(int row_index, const std::uint32_t* allowed, SamplerScratch& sampler) {
    const auto index = static_cast<std::size_t>(row_index);
    const StepRow& row = step_.rows[index];
    const auto size = static_cast<std::size_t>(vocab_size_);
    const std::size_t skipped = logits_[index].size() / size - static_cast<std::size_t>(row.num_sampled);
    std::vector<float> padded(static_cast<std::size_t>(round_up(vocab_size_, kStrip)));
    for (int i = 0; i < row.num_sampled; ++i) {
        const float* logits = logits_[index].data() + (skipped + static_cast<std::size_t>(i)) * size;
        std::memcpy(padded.data(), logits, size * sizeof(float));
        const LogitScan scan = scan_allowed(padded.data(), vocab_size_, kernels_.scan(logits, vocab_size_), allowed);
        const auto pos = static_cast<std::uint32_t>(row.start_pos + row.num_tokens - row.num_sampled + i + 1);
        if (!scan.finite) return;
        sampled_[index][static_cast<std::size_t>(i)].token_id =
            sample(kernels_, padded.data(), vocab_size_, scan, row.rules, pos, allowed, sampler);
    }
}

std::vector<RowOutput> Outcome::results() {
    std::vector<RowOutput> outputs(step_.rows.size());
    for (std::size_t index = 0; index < outputs.size(); ++index) {
        const StepRow& row = step_.rows[index];
        RowOutput& output = outputs[index];
        output.finite = std::count(not_finite_[index].begin(), not_finite_[index].end(), 1) == 0;
        if (row.want_logits) output.logits = std::move(logits_[index]);
        if (!output.finite) continue;
        for (int i = 0; i < row.num_sampled; ++i) {
            const Sampled& sampled = sampled_[index][static_cast<std::size_t>(i)];
            output.token_ids.push_back(sampled.token_id);
            if (row.want_digests) output.digests.push_back(sampled.digest);
            const int next = row.num_tokens - row.num_sampled + i + 1;  // the draft that this sample judges
            if (next < row.num_tokens &&
                step_.token_ids[static_cast<std::size_t>(row.first_token + next)] != sampled.token_id) {
                break;
            }
        }
    }
    return outputs;
}

}  // namespace freehold
