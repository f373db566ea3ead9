// A persistent team of threads that runs one body at a time, all threads through the same code.
//
// Inside a body, `for_each` hands out items by an atomic counter, so that a thread which the system delays takes fewer
// of them, and ends in a barrier. Waiting threads spin for a few microseconds, then sleep.
#pragma once

#include <atomic>
#include <thread>
#include <type_traits>
#include <vector>

namespace freehold {

class Team {
  public:
    // num_threads counts the thread that calls `run`; with `pin` thread i is bound to the i-th permitted processor.
    explicit Team(int num_threads, bool pin = false);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return size_; }

    // Calls body(thread index) once on every thread and returns when all have returned. The body must not throw.
    template <class Body>
    void run(Body&& body) {
        using Plain = std::remove_reference_t<Body>;
        dispatch([](void* context, int thread) { (*static_cast<Plain*>(context))(thread); },
                 const_cast<void*>(static_cast<const void*>(&body)));
    }

    // Within a body, called by every thread alike: calls work(item) once for each of num_items items.
    template <class Work>
    void for_each(int num_items, Work&& work) {
        if (size_ == 1) {
            for (int item = 0; item < num_items; ++item) work(item);
            return;
        }
        for (int item; (item = next_item_.fetch_add(1, std::memory_order_relaxed)) < num_items;) work(item);
        barrier();
    }

    // Within a body, called by every thread alike.
    void barrier();

  private:
    using Entry = void (*)(void* context, int thread);

    void dispatch(Entry entry, void* context);
    void worker(int thread, bool pin);

    int size_;
    std::vector<std::thread> threads_;
    Entry entry_ = nullptr;
    void* context_ = nullptr;
    bool stopping_ = false;

    alignas(64) std::atomic<unsigned> start_{0};
    alignas(64) std::atomic<int> next_item_{0};
    alignas(64) std::atomic<int> num_arrived_{0};
    alignas(64) std::atomic<unsigned> phase_{0};
};

}  // namespace freehold
