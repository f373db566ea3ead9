#include "machine_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "dispatch.h"
#include "limit_kernels.h"
#include "matrix.h"

namespace freehold {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kStepsInBurst = 1 << 23;  // some 2 ms at one a cycle
constexpr std::int64_t kCyclesInBurst = 1 << 22;
constexpr std::size_t kPageBytes = 4096;

const LimitKernels& limits_of(const std::string& isa) {
    choose_kernels(isa);  // refuses what the processor lacks
#if defined(__x86_64__)
    if (isa == "avx512bf16") return avx512bf16_limits();
    if (isa == "avx512") return avx512_limits();
    if (isa == "avx2") return avx2_limits();
#endif
    return generic_limits();
}

// Runs body(thread) on all threads at once. Returns the seconds from the first one's start to the last one's end.
template <class Body>
double burst_s(int num_threads, Body&& body) {
    std::atomic<int> num_ready{0};
    std::vector<Clock::time_point> starts(static_cast<std::size_t>(num_threads));
    std::vector<Clock::time_point> ends(starts.size());
    const auto work = [&](int thread) {
        num_ready.fetch_add(1);
        while (num_ready.load() < num_threads) std::this_thread::yield();
        starts[static_cast<std::size_t>(thread)] = Clock::now();
        body(thread);
        ends[static_cast<std::size_t>(thread)] = Clock::now();
    };
    {
        std::vector<std::jthread> others;
        for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(work, thread);
        work(0);
    }
    const auto taken = *std::max_element(ends.begin(), ends.end()) - *std::min_element(starts.begin(), starts.end());
    return std::chrono::duration<double>(taken).count();
}

// One addition a cycle on every processor, since each waits for the one before. Of registers: some processors get rid
// of the addition of a constant before it runs.
void count_cycles() {
    std::uint64_t sum = 0;
    std::uint64_t one = 1;
    asm volatile("" : "+r"(one));
    for (std::int64_t i = 0; i < kCyclesInBurst; i += 16) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; ++k) {
            sum += one;
            asm volatile("" : "+r"(sum));
        }
    }
}

// Bytes a second of one round.
double fastest_read(const LimitKernels& kernels, const ReadJob& job, const std::uint8_t* data) {
    const auto num_threads = static_cast<std::size_t>(job.num_threads);
    const std::size_t part = job.buffer_bytes / num_threads / kPageBytes * kPageBytes;
    if (part == 0) throw std::invalid_argument("a page for each thread at least");
    const std::size_t num_passes = std::max<std::size_t>(1, job.bytes_in_burst / (part * num_threads));
    double best = 0;
    for (int pattern = 0; pattern < kernels.num_reads; ++pattern) {
        const ReadKernel read = kernels.reads[pattern];
        const double seconds = burst_s(job.num_threads, [&](int thread) {
            for (std::size_t pass = 0; pass < num_passes; ++pass) {
                read(data + part * static_cast<std::size_t>(thread), part);
            }
        });
        best = std::max(best, static_cast<double>(part * num_threads * num_passes) / seconds);
    }
    return best;
}

}  // namespace

std::vector<ComputePeak> measure_compute(const std::string& isa, int num_threads, int num_bursts) {
    if (num_threads < 1 || num_bursts < 1) throw std::invalid_argument("one thread and one burst at least");
    std::vector<ComputePeak> peaks;
    const LimitKernels& kernels = limits_of(isa);
    for (int kind = 0; kind < kernels.num_compute; ++kind) {
        const ComputeKernel& kernel = kernels.compute[kind];
        ComputePeak peak{kernel.kind, kernel.operations_per_step, kernel.instructions_per_step, 0, 0};
        const std::int64_t num_rounds = kStepsInBurst / kernel.steps_per_round;
        const double operations =
            static_cast<double>(num_rounds * kernel.steps_per_round * kernel.operations_per_step) * num_threads;
        // Turn and turn about, since the clock depends on what else has run.
        for (int burst = 0; burst < num_bursts; ++burst) {
            const double cycles_s = burst_s(num_threads, [](int) { count_cycles(); });
            const double kernel_s = burst_s(num_threads, [&](int) { kernel.run(num_rounds); });
            peak.clock_hz = std::max(peak.clock_hz, static_cast<double>(kCyclesInBurst) / cycles_s);
            peak.operations_per_s = std::max(peak.operations_per_s, operations / kernel_s);
        }
        peaks.push_back(std::move(peak));
    }
    return peaks;
}

std::vector<std::vector<double>> measure_reads(const std::string& isa, const std::vector<ReadJob>& jobs,
                                               int num_rounds) {
    const LimitKernels& kernels = limits_of(isa);
    std::size_t buffer_bytes = 0;
    int most_threads = 1;
    for (const ReadJob& job : jobs) {
        if (job.num_threads < 1) throw std::invalid_argument("one thread at least");
        buffer_bytes = std::max(buffer_bytes, job.buffer_bytes);
        most_threads = std::max(most_threads, job.num_threads);
    }
    // Prefetches run a few KiB past the end.
    const Region region(buffer_bytes + (1 << 16), true);
    // Untouched memory is one page of zeros, read from the cache.
    const std::size_t part = buffer_bytes / static_cast<std::size_t>(most_threads);
    burst_s(most_threads, [&](int thread) {
        const std::size_t begin = part * static_cast<std::size_t>(thread);
        std::memset(region.data() + begin, 1, thread == most_threads - 1 ? buffer_bytes - begin : part);
    });
    std::vector<std::vector<double>> rates(jobs.size());
    for (int round = 0; round < num_rounds; ++round) {
        for (std::size_t job = 0; job < jobs.size(); ++job) {
            rates[job].push_back(fastest_read(kernels, jobs[job], region.data()));
        }
    }
    return rates;
}

}  // namespace freehold
