// Where the time of steps goes: spans of work by thread, phase and layer, in memory that is reserved beforehand.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace freehold {

enum class Phase : std::uint8_t {
    embed,
    norm,   // and quantization of its result
    qkv,    // projections to queries, keys and values
    place,  // norms and rotation of heads; keys and values to their blocks
    attention,
    attention_fold,  // of pieces that threads computed apart
    quantize,        // what attention gave
    o,
    gate_up,
    gate,  // silu(gate) * up, and quantization of its result
    down,
    head,
    sample
};
inline constexpr int kNumPhases = 13;
inline constexpr const char* kPhaseNames[kNumPhases] = {"embed",          "norm",     "qkv",   "place",   "attention",
                                                        "attention_fold", "quantize", "o",     "gate_up", "gate",
                                                        "down",           "head",     "sample"};

// What a phase of one step has to do at the least, over all layers.
struct PhaseWork {
    double weight_bytes = 0.0;  // of packed weights, read once
    double kv_bytes = 0.0;      // of keys and values, read once a row
    double operations = 0.0;    // multiplications and additions
};

class Profile {
  public:
    using Clock = std::chrono::steady_clock;

    // A thread's work in one phase of a layer, from its first item to its last.
    struct Span {
        std::int64_t start_ns;  // since the profile began
        std::int64_t end_ns;
        std::int64_t busy_ns;  // in items; the rest went to waiting, or to other phases
        std::int32_t num_items;
        std::int32_t step;  // counted from the profile's first
        std::int16_t layer;
        Phase phase;
    };
    struct Step {
        std::int64_t start_ns;
        std::int64_t end_ns;  // that of the start if the step failed
        int num_rows;
        int num_tokens;
        PhaseWork work[kNumPhases];
    };
    // Nanoseconds of work by phase.
    using Busy = std::array<std::int64_t, kNumPhases>;

    // Of spans, all threads together keep at most `max_spans`; each has its share of them.
    Profile(int num_threads, int max_steps, int max_spans);

    // By the driver, around a step. A step that finds no room is not recorded.
    void begin_step(int num_rows, int num_tokens);
    void end_step();
    bool recording() const { return recording_; }
    // Of the step that runs; by the driver before threads work.
    void add_work(Phase phase, const PhaseWork& work);
    // By each thread, for itself. Joins the thread's last span if that is of the same phase and layer.
    void add(int thread, Phase phase, int layer, Clock::time_point start, Clock::time_point end);

    const std::vector<Step>& steps() const { return steps_; }
    // By thread and step.
    const std::vector<std::vector<Busy>>& busy() const { return busy_; }
    const std::vector<Span>& spans(int thread) const { return threads_[static_cast<std::size_t>(thread)].spans; }
    int num_threads() const { return static_cast<int>(threads_.size()); }
    int num_skipped_steps() const { return num_skipped_steps_; }
    // Spans that found no room; 0 if none were wanted.
    std::int64_t num_lost_spans() const;
    // Of the clock, when the profile began: what all times count from.
    std::int64_t start_ns() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(start_.time_since_epoch()).count();
    }

  private:
    struct alignas(64) Thread {  // so that no two write to the same line
        std::vector<Span> spans;
        std::int64_t num_lost = 0;
    };

    std::int64_t since_start(Clock::time_point at) const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(at - start_).count();
    }

    Clock::time_point start_ = Clock::now();
    std::size_t max_steps_;
    bool recording_ = false;
    int num_skipped_steps_ = 0;
    std::vector<Step> steps_;
    std::vector<std::vector<Busy>> busy_;
    std::size_t spans_each_;
    std::vector<Thread> threads_;
};

// Times a piece of a thread's work while it lives, if a profile is taken.
class Timed {
  public:
    Timed(Profile* profile, int thread, Phase phase, int layer)
        : profile_(profile), thread_(thread), layer_(layer), phase_(phase) {
        if (profile_ != nullptr) start_ = Profile::Clock::now();
    }
    ~Timed() {
        if (profile_ != nullptr) profile_->add(thread_, phase_, layer_, start_, Profile::Clock::now());
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

  private:
    Profile* profile_;
    int thread_, layer_;
    Phase phase_;
    Profile::Clock::time_point start_;
};

}  // namespace freehold
