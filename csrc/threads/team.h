// A persistent team of threads that runs one body at a time, all threads through the same code.
//
// Inside a body, `for_each` hands out items by an atomic ticket and is over when all *items* are done, not when all
// threads have come by: a thread that the system holds up (other work on the same processors) delays the others only if
// that happens within an item. When it comes back it finds the phases that are over and skips them. So all that a body
// does must happen in items; the rest of it may only decide, alike on every thread, which items come next.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

namespace freehold {

// Chains of work whose stages come one after the other; of each chain one thread at a time works on a stage.
class Chains {
  public:
    // Begins anew. By one thread, while no other is in a body.
    void reset(int num_chains, int num_stages);
    // Says after `reset` that no other chain needs what this one leaves.
    void set_alone(int chain) { chains_[static_cast<std::size_t>(chain)].alone = true; }
    int num_chains() const { return num_chains_; }
    int num_stages() const { return num_stages_; }
    // Stages of the chain that are done. What they left can be read.
    int num_done(int chain) const { return static_cast<int>(state(chain).load(std::memory_order_acquire) / 2); }

  private:
    friend class Team;

    // Twice the stages done, and one more while somebody works on the next.
    struct alignas(64) Chain {
        std::atomic<std::uint32_t> state{0};
        bool alone = false;
    };

    bool alone(int chain) const { return chains_[static_cast<std::size_t>(chain)].alone; }
    std::atomic<std::uint32_t>& state(int chain) const { return chains_[static_cast<std::size_t>(chain)].state; }
    // Claims the chain that is furthest behind of those that nobody works on and that are ready, given as chain and
    // stage. Of equals the first, which others may wait for; if nobody does, `last`, whose data this thread's cache
    // holds.
    template <class Ready>
    std::optional<int> claim(int last, Ready&& ready);
    // True if that was the last stage of all.
    bool finish(int chain);

    int num_chains_ = 0, num_stages_ = 0, capacity_ = 0;
    std::unique_ptr<Chain[]> chains_;
    alignas(64) std::atomic<std::uint32_t> num_finished_{0};  // stages of all chains
};

class Team {
  public:
    // num_threads counts the thread that calls `run`; with `pin` the others are bound to a processor each.
    explicit Team(int num_threads, bool pin = false);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Calls body(thread index) on the calling thread and on every other that wakes up in time. Returns when none is in
    // the body any more. The body must not throw.
    template <class Body>
    void run(Body&& body) {
        using Plain = std::remove_reference_t<Body>;
        dispatch([](void* context, int thread) { (*static_cast<Plain*>(context))(thread); },
                 const_cast<void*>(static_cast<const void*>(&body)));
    }

    // Within a body, called by every thread alike: calls work(item) once for each of num_items items, on any thread,
    // and returns when all are done.
    template <class Work>
    void for_each(int num_items, Work&& work) {
        if (size_ == 1) {
            for (int item = 0; item < num_items; ++item) work(item);
            return;
        }
        const std::uint32_t phase = next_phase_++;
        for (;;) {
            std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
            if (phase_of(ticket) != phase) return;
            const int item = static_cast<int>(static_cast<std::uint32_t>(ticket));
            if (item >= num_items) break;
            if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
            work(item);
            if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_items) return finish_phase(phase);
        }
        if (num_items == 0) return skip_phase(phase);
        wait_for_phase_after(phase);
    }

    // As for_each, for items that lie one after the other in memory: each thread begins with a run of neighbours that
    // is its own in every phase of so many items, and then takes what others have left over.
    template <class Work>
    void for_each_in_runs(int thread, int num_items, Work&& work) {
        if (size_ == 1 || num_items == 0) return for_each(num_items, work);
        const std::uint32_t phase = next_phase_++;
        for (int other = 0; other < size_; ++other) {
            const int owner = (thread + other) % size_;
            const int begin = run_begin(owner, num_items), end = run_begin(owner + 1, num_items);
            while (const std::optional<int> item = claim(owner, phase, begin, end)) {
                work(*item);
                if (num_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_items) return finish_phase(phase);
            }
        }
        wait_for_phase_after(phase);
    }

    // Within a body, called by every thread alike: takes each chain through its stages, work(chain, stage) on any
    // thread, a stage once `ready(chain, stage)`: what it needs of other chains is done. Nobody waits for more than
    // that. Stage by stage, the chains' order must suit what they need. Returns when all are done.
    template <class Ready, class Work>
    void for_each_stage(Chains& chains, Ready&& ready, Work&& work) {
        if (size_ == 1) {
            for (int stage = 0; stage < chains.num_stages_; ++stage) {
                for (int chain = 0; chain < chains.num_chains_; ++chain) work(chain, stage);
            }
            return;
        }
        const std::uint32_t phase = next_phase_++;
        int last = 0;
        while (phase_of(ticket_.load(std::memory_order_acquire)) == phase) {
            const std::uint32_t num_finished = chains.num_finished_.load(std::memory_order_acquire);
            const std::optional<int> chain = chains.claim(last, ready);
            if (!chain) {
                wait_for_stage(chains, num_finished, phase);
                continue;
            }
            last = *chain;
            work(last, chains.num_done(last));
            if (chains.finish(last)) return finish_phase(phase);
        }
    }

    // Where the run of thread `owner` begins among `num_items`.
    int run_begin(int owner, int num_items) const { return static_cast<int>(std::int64_t{num_items} * owner / size_); }

  private:
    using Entry = void (*)(void* context, int thread);

    // How far a run is: phase and claimed items. Of a phase before, if nobody has claimed from it yet.
    struct alignas(64) Run {
        std::atomic<std::uint64_t> ticket{0};
    };

    static std::uint32_t phase_of(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket >> 32); }

    // The next item of a run, if one is left and the phase isn't over.
    std::optional<int> claim(int owner, std::uint32_t phase, int begin, int end);
    void dispatch(Entry entry, void* context);
    void worker(int thread, bool pin);
    bool enter();
    void leave();
    void finish_phase(std::uint32_t phase);
    void skip_phase(std::uint32_t phase);
    void wait_for_phase_after(std::uint32_t phase);
    // Until more stages are finished, or the phase is over.
    void wait_for_stage(const Chains& chains, std::uint32_t num_finished, std::uint32_t phase);

    // The phase that this thread comes to next. A thread is in one body at a time.
    static thread_local std::uint32_t next_phase_;

    int size_;
    std::unique_ptr<Run[]> runs_;
    std::vector<std::thread> threads_;
    Entry entry_ = nullptr;
    void* context_ = nullptr;
    std::uint32_t first_phase_ = 0;  // of the body that runs
    std::atomic<bool> stopping_{false};

    alignas(64) std::atomic<std::uint32_t> start_{0};   // counts bodies; sleeping threads wait for it
    alignas(64) std::atomic<std::uint32_t> gate_;       // threads in the body, and whether more may enter
    alignas(64) std::atomic<std::uint64_t> ticket_{0};  // phase and its next item
    alignas(64) std::atomic<int> num_done_{0};          // items of this phase
};

template <class Ready>
std::optional<int> Chains::claim(int last, Ready&& ready) {
    for (;;) {
        std::optional<int> best;
        std::uint32_t least = 2 * static_cast<std::uint32_t>(num_stages_);
        for (int chain = 0; chain < num_chains_; ++chain) {
            const std::uint32_t state = this->state(chain).load(std::memory_order_acquire);
            const bool better = state < least || (best && state == least && chain == last && alone(chain));
            if (state % 2 == 1 || !better || !ready(chain, static_cast<int>(state / 2))) continue;
            best = chain;
            least = state;
        }
        if (!best || state(*best).compare_exchange_strong(least, least + 1, std::memory_order_acq_rel)) return best;
    }
}

}  // namespace freehold
