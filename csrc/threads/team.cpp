#include "threads/team.h"

#include <pthread.h>
#include <sched.h>

#include "threads/float_mode.h"

namespace freehold {
namespace {

constexpr int kSpins = 1500;  // some 30 microseconds: longer than threads of one step drift apart
constexpr int kYields = 200;  // then let others run, but stay runnable: sleepers are woken late and on a busy processor
constexpr std::uint32_t kClosed = 1u << 31;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns when over(value) holds: spins, yields, then sleeps.
template <class Value, class Over>
void wait_until(const std::atomic<Value>& atomic, int num_yields, Over&& over) {
    for (int i = 0; i < kSpins; ++i) {
        if (over(atomic.load(std::memory_order_acquire))) return;
        relax();
    }
    for (int i = 0; i < num_yields; ++i) {
        if (over(atomic.load(std::memory_order_acquire))) return;
        sched_yield();
    }
    for (;;) {
        const Value value = atomic.load(std::memory_order_acquire);
        if (over(value)) return;
        atomic.wait(value, std::memory_order_acquire);
    }
}

void pin_to_processor(int index) {
    cpu_set_t permitted;
    if (sched_getaffinity(0, sizeof permitted, &permitted) != 0) return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &permitted)) continue;
        if (seen++ != index) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

}  // namespace

thread_local std::uint32_t Team::next_phase_ = 0;

void Chains::reset(int num_chains, int num_stages) {
    if (num_chains > capacity_) {
        chains_ = std::make_unique<Chain[]>(static_cast<std::size_t>(num_chains));
        capacity_ = num_chains;
    }
    num_chains_ = num_chains;
    num_stages_ = num_stages;
    for (int chain = 0; chain < num_chains; ++chain) {
        state(chain).store(0, std::memory_order_relaxed);
        chains_[static_cast<std::size_t>(chain)].alone = false;
    }
    num_finished_.store(0, std::memory_order_relaxed);
}

bool Chains::finish(int chain) {
    state(chain).fetch_add(1, std::memory_order_release);
    const auto all = static_cast<std::uint32_t>(num_chains_ * num_stages_);
    const bool last = num_finished_.fetch_add(1, std::memory_order_acq_rel) + 1 == all;
    num_finished_.notify_all();
    return last;
}

Team::Team(int num_threads, bool pin)
    : size_(num_threads < 1 ? 1 : num_threads),
      runs_(std::make_unique<Run[]>(static_cast<std::size_t>(size_))),
      gate_(kClosed) {
    threads_.reserve(static_cast<std::size_t>(size_ - 1));
    for (int thread = 1; thread < size_; ++thread) {
        threads_.emplace_back([this, thread, pin] { worker(thread, pin); });
    }
}

Team::~Team() {
    stopping_ = true;
    start_.fetch_add(1, std::memory_order_release);
    start_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void Team::worker(int thread, bool pin) {
    if (pin) pin_to_processor(thread);
    const FloatMode mode;
    for (std::uint32_t seen = 0;;) {
        wait_until(start_, 0, [&](std::uint32_t start) { return start != seen; });
        seen = start_.load(std::memory_order_acquire);
        if (stopping_) return;
        if (!enter()) continue;
        next_phase_ = first_phase_;
        entry_(context_, thread);
        leave();
    }
}

bool Team::enter() {
    std::uint32_t gate = gate_.load(std::memory_order_acquire);
    while ((gate & kClosed) == 0) {
        if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
    }
    return false;
}

void Team::leave() {
    gate_.fetch_sub(1, std::memory_order_acq_rel);
    gate_.notify_all();
}

void Team::dispatch(Entry entry, void* context) {
    const FloatMode mode;
    if (size_ == 1) {
        entry(context, 0);
        return;
    }
    entry_ = entry;
    context_ = context;
    first_phase_ = phase_of(ticket_.load(std::memory_order_relaxed));
    next_phase_ = first_phase_;
    // Nobody is in a body now. Runs that long went without items would else seem to be ahead once phases wrap around.
    for (int run = 0; run < size_; ++run) {
        runs_[static_cast<std::size_t>(run)].ticket.store(std::uint64_t{first_phase_} << 32, std::memory_order_relaxed);
    }
    gate_.store(0, std::memory_order_release);
    start_.fetch_add(1, std::memory_order_release);
    start_.notify_all();
    entry(context, 0);
    gate_.fetch_or(kClosed, std::memory_order_acq_rel);
    wait_until(gate_, kYields, [](std::uint32_t gate) { return gate == kClosed; });
}

std::optional<int> Team::claim(int owner, std::uint32_t phase, int begin, int end) {
    std::atomic<std::uint64_t>& ticket = runs_[static_cast<std::size_t>(owner)].ticket;
    std::uint64_t seen = ticket.load(std::memory_order_acquire);
    for (;;) {
        // Whoever comes first in a phase starts the run anew. Of a phase that is over, each run with items has been
        // started in it or in a later one, so that a late thread finds nothing.
        const auto ahead = static_cast<std::int32_t>(phase_of(seen) - phase);
        const std::uint64_t now = ahead < 0 ? std::uint64_t{phase} << 32 : seen;
        const auto claimed = static_cast<int>(static_cast<std::uint32_t>(now));
        if (ahead > 0 || claimed >= end - begin) return std::nullopt;
        if (ticket.compare_exchange_weak(seen, now + 1, std::memory_order_acq_rel)) return begin + claimed;
    }
}

void Team::finish_phase(std::uint32_t phase) {
    num_done_.store(0, std::memory_order_relaxed);
    ticket_.store(std::uint64_t{phase + 1} << 32, std::memory_order_release);
    ticket_.notify_all();
}

void Team::skip_phase(std::uint32_t phase) {
    std::uint64_t ticket = std::uint64_t{phase} << 32;
    if (ticket_.compare_exchange_strong(ticket, std::uint64_t{phase + 1} << 32, std::memory_order_acq_rel)) {
        ticket_.notify_all();
    }
}

void Team::wait_for_stage(const Chains& chains, std::uint32_t num_finished, std::uint32_t phase) {
    const auto all = static_cast<std::uint32_t>(chains.num_chains_ * chains.num_stages_);
    if (num_finished == all) return wait_for_phase_after(phase);
    wait_until(chains.num_finished_, kYields, [num_finished](std::uint32_t now) { return now != num_finished; });
}

void Team::wait_for_phase_after(std::uint32_t phase) {
    wait_until(ticket_, kYields, [phase](std::uint64_t ticket) { return phase_of(ticket) != phase; });
}

}  // namespace freehold
