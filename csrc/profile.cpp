#include "profile.h"

namespace freehold {

Profile::Profile(int num_threads, int max_steps, int max_spans)
    : max_steps_(static_cast<std::size_t>(max_steps)),
      spans_each_(static_cast<std::size_t>(max_spans / num_threads)),
      threads_(static_cast<std::size_t>(num_threads)) {
    steps_.reserve(max_steps_);
    busy_.assign(static_cast<std::size_t>(num_threads), std::vector<Busy>(max_steps_, Busy{}));
    for (Thread& thread : threads_) thread.spans.reserve(spans_each_);
}

std::int64_t Profile::num_lost_spans() const {
    std::int64_t sum = 0;
    for (const Thread& thread : threads_) sum += thread.num_lost;
    return sum;
}

void Profile::begin_step(int num_rows, int num_tokens) {
    recording_ = steps_.size() < max_steps_;
    if (recording_) {
        const std::int64_t now_ns = since_start(Clock::now());
        steps_.push_back({now_ns, now_ns, num_rows, num_tokens, {}});
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
    const std::int64_t start_ns = since_start(start), end_ns = since_start(end);
    const auto step = static_cast<std::int32_t>(steps_.size()) - 1;
    busy_[static_cast<std::size_t>(thread)][steps_.size() - 1][static_cast<std::size_t>(phase)] += end_ns - start_ns;
    if (spans_each_ == 0) return;
    Thread& own = threads_[static_cast<std::size_t>(thread)];
    if (!own.spans.empty()) {
        Span& last = own.spans.back();
        if (last.phase == phase && last.layer == layer && last.step == step) {
            last.end_ns = end_ns;
            last.busy_ns += end_ns - start_ns;
            ++last.num_items;
            return;
        }
    }
    if (own.spans.size() >= spans_each_) {
        ++own.num_lost;
        return;
    }
    own.spans.push_back({start_ns, end_ns, end_ns - start_ns, 1, step, static_cast<std::int16_t>(layer), phase});
}

}  // namespace freehold
