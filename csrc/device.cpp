#include "device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <utility>

#include "outcome.h"
#include "step_work.h"
#include "threads/float_mode.h"

namespace freehold {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{250};  // without work: the next step isn't just being planned
constexpr std::size_t kRememberedSteps = 64;      // more than a runner keeps in flight

bool computes_bf16_dots(const KernelTable& kernels, const DeviceOptions& options) {
    return options.int8 && options.kv_format == KvFormat::bf16 && kernels.bf16_dot;
}

[[noreturn]] void refuse(const Step& step, const std::string& why) {
    throw StepRefused("step " + std::to_string(step.id) + ": " + why);
}

}  // namespace

Device::Device(std::unique_ptr<Model> model, const KernelTable& kernels, const DeviceOptions& options)
    : model_(std::move(model)),
      kernels_(kernels),
      options_(options),
      kv_(*model_, options.num_blocks, options.block_size, options.kv_format),
      kv_touched_(kv_.block(0), kv_.block_bytes() * static_cast<std::size_t>(options.num_blocks)),
      scratch_(*model_, {.max_tokens = options.max_tokens,
                         .num_threads = options.num_threads,
                         .int8 = options.int8,
                         .integer_scales = options.int8 && model_->has_integer_scales(),
                         .kv_format = options.kv_format,
                         .bf16_dot = computes_bf16_dots(kernels, options)}),
      team_(options.num_threads, options.pin),
      forward_(*model_, kv_, scratch_, kernels, team_, options.int8, computes_bf16_dots(kernels, options)) {
    for (int thread = 0; thread < team_.size(); ++thread) samplers_.emplace_back(model_->vocab_size);
    driver_ = std::thread([this] { drive(); });
}

Device::~Device() { close(); }

std::size_t Device::scratch_bytes() const {
    return scratch_.num_bytes() + samplers_.size() * samplers_.front().num_bytes();
}

void Device::drive() {
    const FloatMode mode;
    std::unique_lock lock(mutex_);
    const auto has_work = [this] { return closing_ || !queue_.empty(); };
    for (;;) {
        if (!work_came_.wait_for(lock, kPause, has_work)) {
            while (!has_work() && kv_touched_.wants_more()) {
                lock.unlock();
                kv_touched_.touch();
                lock.lock();
            }
            work_came_.wait(lock, has_work);
        }
        if (queue_.empty()) return;
        const std::function<void()> work = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        work();
        lock.lock();
    }
}

void Device::enqueue(std::function<void()> work) {
    {
        const std::lock_guard lock(mutex_);
        if (closing_) throw std::runtime_error("the device is closed");
        queue_.push_back(std::move(work));
    }
    work_came_.notify_all();
}

void Device::call(const std::function<void()>& work) {
    std::packaged_task<void()> task(work);
    std::future<void> done = task.get_future();
    enqueue([&task] { task(); });
    done.get();
}

void Device::copy_block(int source, int destination) {
    std::memcpy(kv_.block(destination), kv_.block(source), kv_.block_bytes());
}

void Device::start_profile(int max_steps, int max_spans) {
    auto profile = std::make_unique<Profile>(team_.size(), max_steps, max_spans);
    call([&] { profile_ = std::move(profile); });
}

std::unique_ptr<Profile> Device::stop_profile() {
    std::unique_ptr<Profile> profile;
    call([&] { profile = std::move(profile_); });
    return profile;
}

void Device::submit(Step step) {
    auto pending = std::make_shared<Pending>();
    pending->step = std::move(step);
    for (const StepRow& row : pending->step.rows) pending->needs_masks |= row.deferred;
    {
        const std::lock_guard lock(mutex_);
        pending_[pending->step.id] = pending;
    }
    enqueue([this, pending] {
        try {
            run_step(*pending);
        } catch (...) {
            pending->error = std::current_exception();
        }
        bool awaited;
        {
            const std::lock_guard lock(mutex_);
            pending->done = true;
            awaited = pending->step.id >= awaited_id_;
        }
        if (awaited) work_done_.notify_all();
    });
}

void Device::sample(std::int64_t step_id, Masks masks) {
    {
        const std::lock_guard lock(mutex_);
        const auto found = pending_.find(step_id);
        if (found == pending_.end()) throw std::invalid_argument("no such step: " + std::to_string(step_id));
        found->second->masks = std::move(masks);
        found->second->needs_masks = false;
    }
    work_came_.notify_all();
}

std::shared_ptr<Device::Pending> Device::when_done(std::int64_t step_id, std::unique_lock<std::mutex>& lock) {
    const auto found = pending_.find(step_id);
    if (found == pending_.end()) throw std::invalid_argument("no such step: " + std::to_string(step_id));
    const std::shared_ptr<Pending> pending = found->second;
    awaited_id_ = step_id;
    work_done_.wait(lock, [&] { return pending->done; });
    return pending;
}

void Device::wait(std::int64_t step_id) {
    std::unique_lock lock(mutex_);
    when_done(step_id, lock);
}

StepOutput Device::collect(std::int64_t step_id) {
    std::shared_ptr<Pending> pending;
    {
        std::unique_lock lock(mutex_);
        pending = when_done(step_id, lock);
        pending_.erase(step_id);
    }
    if (pending->error) std::rethrow_exception(pending->error);
    return std::move(pending->output);
}

void Device::close() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    work_came_.notify_all();
    if (driver_.joinable()) driver_.join();
}

void Device::check(const Step& step) const {
    if (static_cast<int>(step.rows.size()) > options_.max_rows) {
        refuse(step, std::to_string(step.rows.size()) + " rows, at most " + std::to_string(options_.max_rows));
    }
    if (static_cast<int>(step.token_ids.size()) > options_.max_tokens) {
        refuse(step, std::to_string(step.token_ids.size()) + " inputs, at most " + std::to_string(options_.max_tokens));
    }
    const auto check_ids = [&](const std::vector<std::int32_t>& ids) {
        for (const std::int32_t id : ids) {
            if (id < 0 || id >= model_->vocab_size) refuse(step, "token id " + std::to_string(id) + " is no token");
        }
    };
    check_ids(step.token_ids);
    check_ids(step.context_ids);
    check_ids(step.scored_ids);
    for (const StepRow& row : step.rows) check_ids(row.rules.bias_ids);
    for (const std::int32_t id : step.block_ids) {
        if (id < 0 || id >= options_.num_blocks) refuse(step, "block id " + std::to_string(id) + " is no block");
    }
    for (const StepRow& row : step.rows) {
        const std::int64_t end = std::int64_t{row.start_pos} + row.num_tokens;
        if (row.start_pos < 0 || row.num_tokens < 1) refuse(step, "a row without inputs, or before position 0");
        if (end > std::int64_t{row.num_blocks} * options_.block_size) {
            refuse(step, "position " + std::to_string(end - 1) + " lies in no block");
        }
        if (row.num_sampled < 0 || row.num_sampled > row.num_tokens) {
            refuse(step,
                   std::to_string(row.num_sampled) + " samples from " + std::to_string(row.num_tokens) + " inputs");
        }
        if (row.num_scored > row.num_tokens) {
            refuse(step, std::to_string(row.num_scored) + " ids follow " + std::to_string(row.num_tokens) + " inputs");
        }
        if (row.rules.has_penalties() && row.num_context != row.start_pos) {
            refuse(step, std::to_string(row.num_context) + " ids before position " + std::to_string(row.start_pos));
        }
    }
}

void Device::fill_fed_inputs(Step& step) const {
    for (const StepRow& row : step.rows) {
        if (!row.fed_by) continue;
        const auto found = last_ids_.find(row.fed_by->step_id);
        if (found == last_ids_.end() || row.fed_by->row < 0 ||
            row.fed_by->row >= static_cast<int>(found->second.size())) {
            refuse(step, "fed by row " + std::to_string(row.fed_by->row) + " of step " +
                             std::to_string(row.fed_by->step_id) + ", which sampled nothing");
        }
        step.token_ids[static_cast<std::size_t>(row.first_token)] =
            found->second[static_cast<std::size_t>(row.fed_by->row)];
    }
}

// Returns the seconds it took.
double Device::wait_for_masks(Pending& pending) {
    const auto start = Clock::now();
    {
        std::unique_lock lock(mutex_);
        work_came_.wait(lock, [&] { return closing_ || !pending.needs_masks; });
        if (pending.needs_masks) refuse(pending.step, "the device was closed before its masks came");
    }
    const auto num_words = static_cast<std::size_t>(model_->vocab_size + 31) / 32;
    for (std::size_t index = 0; index < pending.step.rows.size(); ++index) {
        const StepRow& row = pending.step.rows[index];
        const auto found = pending.masks.find(static_cast<int>(index));
        const std::size_t size = found == pending.masks.end() ? 0 : found->second.size();
        if (row.deferred && size != static_cast<std::size_t>(row.num_sampled) * num_words) {
            refuse(pending.step, "row " + std::to_string(index) + " lacks a mask, or has another's");
        }
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void Device::run_step(Pending& pending) {
    Step& step = pending.step;
    // Rows that are fed by this step may follow even if it fails; their ids mean nothing then.
    std::vector<std::int32_t>& last = last_ids_[step.id];
    last.assign(step.rows.size(), 0);
    if (last_ids_.size() > kRememberedSteps) last_ids_.erase(last_ids_.begin());
    fill_fed_inputs(step);
    check(step);
    const auto highest = std::max_element(step.block_ids.begin(), step.block_ids.end());
    kv_touched_.use(kv_.block_bytes() * static_cast<std::size_t>(*highest + 1));
    const auto start = Clock::now();
    Outcome outcome(step, model_->vocab_size, kernels_);
    if (profile_) {
        profile_->begin_step(static_cast<int>(step.rows.size()), static_cast<int>(step.token_ids.size()));
        if (profile_->recording()) add_step_work(*model_, kv_, step, outcome.tokens(), *profile_);
    }
    forward_.prepare(step, outcome.tokens(), profile_ && profile_->recording() ? profile_.get() : nullptr);
    double waited_s = 0.0;
    const bool defers =
        std::any_of(step.rows.begin(), step.rows.end(), [](const StepRow& row) { return row.deferred; });
    if (defers) {
        team_.run([&](int thread) {
            forward_.layers(thread);
            outcome.begin(forward_, scratch_, thread);
        });
        waited_s = wait_for_masks(pending);
    }
    team_.run([&](int thread) {
        if (!defers) forward_.layers(thread);
        outcome.run(forward_, scratch_, team_, samplers_, pending.masks, defers, thread);
    });
    if (profile_) profile_->end_step();
    pending.output.run_s = std::chrono::duration<double>(Clock::now() - start).count() - waited_s;
    pending.output.rows = outcome.results();
    for (std::size_t row = 0; row < last.size(); ++row) {
        const std::vector<std::int32_t>& ids = pending.output.rows[row].token_ids;
        if (!ids.empty()) last[row] = ids.back();
    }
}

}  // namespace freehold
