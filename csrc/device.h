// A loaded model with its KV blocks and threads. Steps are queued and run, one after the other, by the device's own
// driver thread, which is also thread 0 of the team.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "forward.h"
#include "touched_ahead.h"

namespace freehold {

struct DeviceOptions {
    int num_blocks = 0;
    int block_size = 0;
    int max_rows = 0;
    int max_tokens = 0;
    int num_threads = 1;
    KvFormat kv_format = KvFormat::bf16;
    bool int8 = false;
    bool pin = false;
};

class Device {
  public:
    // `model` must be complete. Throws std::bad_alloc if memory cannot be reserved.
    Device(std::unique_ptr<Model> model, const KernelTable& kernels, const DeviceOptions& options);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    void submit(Step step);
    void sample(std::int64_t step_id, Masks masks);
    // Returns when a submitted step, and so all before it, has run or failed.
    void wait(std::int64_t step_id);
    // Waits. Throws what the step threw.
    StepOutput collect(std::int64_t step_id);
    // Runs `work` on the driver thread after all submitted steps; does not wait.
    void enqueue(std::function<void()> work);
    // Likewise, and waits for it.
    void call(const std::function<void()>& work);
    void copy_block(int source, int destination);
    std::uint8_t* block(int block_id) const { return kv_.block(block_id); }
    std::size_t block_bytes() const { return kv_.block_bytes(); }
    // Records the next steps, at most `max_steps`, and `max_spans` of what threads did in them; drops a profile that
    // runs.
    void start_profile(int max_steps, int max_spans);
    // Null if none was started.
    std::unique_ptr<Profile> stop_profile();
    std::size_t scratch_bytes() const;
    int vocab_size() const { return model_->vocab_size; }
    const char* isa() const { return kernels_.isa; }
    // Finishes what is queued and ends the threads. Steps that wait for masks fail.
    void close();

  private:
    struct Pending {
        Step step;
        StepOutput output;
        std::exception_ptr error;
        Masks masks;
        bool needs_masks = false;
        bool done = false;
    };

    void drive();
    void run_step(Pending& pending);
    void check(const Step& step) const;
    void fill_fed_inputs(Step& step) const;
    double wait_for_masks(Pending& pending);
    // With the lock held.
    std::shared_ptr<Pending> when_done(std::int64_t step_id, std::unique_lock<std::mutex>& lock);

    std::unique_ptr<Model> model_;
    const KernelTable& kernels_;
    DeviceOptions options_;
    KvPool kv_;
    TouchedAhead kv_touched_;  // driver thread only
    Scratch scratch_;
    Team team_;
    std::unique_ptr<Profile> profile_;  // while one is taken
    Forward forward_;
    std::vector<SamplerScratch> samplers_;                        // one a thread
    std::map<std::int64_t, std::vector<std::int32_t>> last_ids_;  // of recent steps, by row; driver thread only

    std::mutex mutex_;
    std::condition_variable work_came_;
    std::condition_variable work_done_;
    std::deque<std::function<void()>> queue_;
    std::map<std::int64_t, std::shared_ptr<Pending>> pending_;
    std::int64_t awaited_id_ = 0;  // steps before this one wake nobody
    bool closing_ = false;
    std::thread driver_;
};

}  // namespace freehold
