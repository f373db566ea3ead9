#include "threads/team.h"

#include <pthread.h>
#include <sched.h>

#include "threads/float_mode.h"

namespace freehold {
namespace {

constexpr int kSpins = 1500;  // some 30 microseconds: longer than a barrier needs, far shorter than a time slice

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

unsigned wait_until_changed(const std::atomic<unsigned>& value, unsigned old) {
    for (int i = 0; i < kSpins; ++i) {
        const unsigned now = value.load(std::memory_order_acquire);
        if (now != old) return now;
        relax();
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
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

Team::Team(int num_threads, bool pin) : size_(num_threads < 1 ? 1 : num_threads) {
    threads_.reserve(static_cast<std::size_t>(size_ - 1));
    for (int thread = 1; thread < size_; ++thread) threads_.emplace_back([this, thread, pin] { worker(thread, pin); });
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
    for (unsigned seen = 0;;) {
        seen = wait_until_changed(start_, seen);
        if (stopping_) return;
        entry_(context_, thread);
        barrier();
    }
}

void Team::dispatch(Entry entry, void* context) {
    const FloatMode mode;
    if (size_ == 1) {
        entry(context, 0);
        return;
    }
    entry_ = entry;
    context_ = context;
    start_.fetch_add(1, std::memory_order_release);
    start_.notify_all();
    entry(context, 0);
    barrier();
}

void Team::barrier() {
    if (size_ == 1) return;
    const unsigned phase = phase_.load(std::memory_order_acquire);
    if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
        next_item_.store(0, std::memory_order_relaxed);
        num_arrived_.store(0, std::memory_order_relaxed);
        phase_.fetch_add(1, std::memory_order_release);
        phase_.notify_all();
        return;
    }
    wait_until_changed(phase_, phase);
}

}  // namespace freehold
