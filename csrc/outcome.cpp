#include "outcome.h"

#include <algorithm>
#include <cstring>

#include "allowed.h"

namespace freehold {
namespace {

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

}  // namespace

Outcome::Outcome(const Step& step, int vocab_size, const KernelTable& kernels)
    : step_(step), vocab_size_(vocab_size), kernels_(kernels) {
    const std::size_t num_rows = step.rows.size();
    sampled_.resize(num_rows);
    scored_.resize(num_rows);
    logits_.resize(num_rows);
    not_finite_.resize(num_rows);
    for (std::size_t index = 0; index < num_rows; ++index) {
        const StepRow& row = step.rows[index];
        const int first_sampled = row.num_tokens - row.num_sampled;
        for (int input = 0; input < row.num_tokens; ++input) {
            if (!row.want_logits && input >= row.num_scored && input < first_sampled) continue;
            targets_.push_back({static_cast<int>(index), input});
            tokens_.push_back(row.first_token + input);
        }
        sampled_[index].resize(index_of(row.num_sampled));
        scored_[index].resize(index_of(row.num_scored));
        not_finite_[index].assign(index_of(row.num_tokens), 0);
        if (row.want_logits) logits_[index].resize(index_of(row.num_tokens) * index_of(vocab_size));
    }
}

int Outcome::count_from(const Scratch& scratch, int begin) const {
    return std::min(scratch.max_logit_rows(), static_cast<int>(targets_.size()) - begin);
}

void Outcome::begin(Forward& forward, const Scratch& scratch, int thread) {
    forward.logits(thread, 0, count_from(scratch, 0));
}

void Outcome::run(Forward& forward, const Scratch& scratch, Team& team, std::vector<SamplerScratch>& samplers,
                  const Masks& masks, bool begun, int thread) {
    const auto total = static_cast<int>(targets_.size());
    for (int begin = 0; begin < total; begin += scratch.max_logit_rows()) {
        const int count = count_from(scratch, begin);
        if (begin > 0 || !begun) forward.logits(thread, begin, count);
        team.for_each(count, [&](int i) {
            const Timed timed(forward.profile(), thread, Phase::sample, 0);
            float* logits = scratch.logits + static_cast<std::ptrdiff_t>(i) * scratch.logit_stride();
            take(targets_[index_of(begin + i)], logits, masks, samplers[index_of(thread)]);
        });
    }
}

void Outcome::take(const Target& target, float* logits, const Masks& masks, SamplerScratch& sampler) {
    const StepRow& row = step_.rows[index_of(target.row)];
    const LogitScan scan = kernels_.scan(logits, vocab_size_);
    not_finite_[index_of(target.row)][index_of(target.input)] = scan.finite ? 0 : 1;
    if (row.want_logits) {
        const std::size_t size = index_of(vocab_size_);
        std::memcpy(logits_[index_of(target.row)].data() + index_of(target.input) * size, logits, size * sizeof(float));
    }
    if (target.input < row.num_scored && scan.finite) {
        const std::int32_t id = step_.scored_ids[index_of(row.first_scored + target.input)];
        scored_[index_of(target.row)][index_of(target.input)] =
            logprobs_of(kernels_, logits, vocab_size_, scan, id, row.num_scored_top, sampler.ids);
    }
    if (target.input >= row.num_tokens - row.num_sampled) sample_one(target, logits, scan, masks, sampler);
}

void Outcome::sample_one(const Target& target, float* logits, const LogitScan& scan, const Masks& masks,
                         SamplerScratch& sampler) {
    const StepRow& row = step_.rows[index_of(target.row)];
    const int number = target.input - (row.num_tokens - row.num_sampled);
    Sampled& sampled = sampled_[index_of(target.row)][index_of(number)];
    if (row.want_digests) sampled.digest = kernels_.digest(logits, vocab_size_);
    if (!scan.finite) return;
    SamplePlace place;
    place.pos = static_cast<std::uint32_t>(row.start_pos + target.input + 1);
    place.context = {step_.context_ids.data() + row.first_context, row.num_context,
                     step_.token_ids.data() + row.first_token, target.input + 1};
    if (row.deferred) {
        place.allowed = masks.at(target.row).data() + index_of(number) * (index_of(vocab_size_ + 31) / 32);
        sampled.allowed = allows_any(place.allowed, vocab_size_);
        if (!sampled.allowed) return;
    }
    sampled.token_id = sample(kernels_, logits, vocab_size_, scan, row.rules, place, sampler);
    if (row.num_logprobs) {
        sampled.logprobs =
            logprobs_of(kernels_, logits, vocab_size_, scan, sampled.token_id, *row.num_logprobs, sampler.ids);
    }
}

std::vector<RowOutput> Outcome::results() {
    std::vector<RowOutput> outputs(step_.rows.size());
    for (std::size_t index = 0; index < outputs.size(); ++index) {
        const StepRow& row = step_.rows[index];
        RowOutput& output = outputs[index];
        output.finite = std::count(not_finite_[index].begin(), not_finite_[index].end(), 1) == 0;
        output.logits = std::move(logits_[index]);
        if (!output.finite) continue;
        output.scored = std::move(scored_[index]);
        for (int i = 0; i < row.num_sampled; ++i) {
            Sampled& sampled = sampled_[index][index_of(i)];
            if (!sampled.allowed) break;
            output.token_ids.push_back(sampled.token_id);
            if (row.want_digests) output.digests.push_back(sampled.digest);
            if (row.num_logprobs) output.logprobs.push_back(std::move(sampled.logprobs));
            const int next = row.num_tokens - row.num_sampled + i + 1;  // the draft that this sample judges
            if (next < row.num_tokens && step_.token_ids[index_of(row.first_token + next)] != sampled.token_id) break;
        }
    }
    return outputs;
}

}  // namespace freehold
