#include "profile.h"

namespace freehold {
namespace {

constexpr std::size_t kSpansPerStep = 4096;  // of one thread, on average

}  // namespace

Profile::Profile(int num_threads, int max_steps) : max_steps_(static_cast<std::size_t>(max_steps)) {
    steps_.reserve(max_steps_);
    busy_.assign(static_cast<std::size_t>(num_threads), std::vector<Busy>(max_steps_, Busy{}));
    spans_.resize(static_cast<std::size_t>(num_threads));
    for (std::vector<Span>& spans : spans_) spans.reserve(max_steps_ * kSpansPerStep);
}

void Profile::begin_step(int num_rows, int num_tokens) {
    recording_ = steps_.size() < max_steps_;
    if (recording_) {
        steps_.push_back({since_start(Clock::now()), 0, num_rows, num_tokens, {}});
    } else {
        ++num_skipped_steps_;
    }
}

void Profile::end_step() {
    if (recording_) steps_.back().end_ns = since_start(Clock::now());
    recording_ = false;
}

void Profile::add_work(Phase phase, const PhaseWork& work) {
    PhaseWork& sum = steps_.back().work[static_cast<int>(phase)];
    sum.weight_bytes += work.weight_bytes;
    sum.kv_bytes += work.kv_bytes;
    sum.operations += work.operations;
}

void Profile::add(int thread, Phase phase, int layer, Clock::time_point start, Clock::time_point end) {
    std::vector<Span>& spans = spans_[static_cast<std::size_t>(thread)];
    const std::int64_t start_ns = since_start(start), end_ns = since_start(end);
    const auto step = static_cast<std::int32_t>(steps_.size()) - 1;
    busy_[static_cast<std::size_t>(thread)][steps_.size() - 1][static_cast<std::size_t>(phase)] += end_ns - start_ns;
    if (!spans.empty()) {
        Span& last = spans.back();
        if (last.phase == phase && last.layer == layer && last.step == step) {
            last.end_ns = end_ns;
            last.busy_ns += end_ns - start_ns;
            ++last.num_items;
            return;
        }
    }
    if (spans.size() == spans.capacity()) return;
    spans.push_back({start_ns, end_ns, end_ns - start_ns, 1, step, static_cast<std::int16_t>(layer), phase});
}

}  // namespace freehold
