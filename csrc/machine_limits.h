// What this processor can do at most: the numbers that a step's speed is compared with.
//
// Measured in bursts of a few milliseconds. Of arithmetic the best burst counts: on a machine that others use too, it
// says what the machine can do, the mean says how busy it was. How fast memory is depends on those others all the time,
// so reading gives a figure for each round.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace freehold {

struct ComputePeak {
    std::string kind;  // as in limit_kernels.h
    int operations_per_step;
    int instructions_per_step;
    double operations_per_s;  // of all threads
    double clock_hz;          // of one thread, while all of them ran
};

// Throws std::invalid_argument for an instruction set that is unknown or that the processor lacks.
std::vector<ComputePeak> measure_compute(const std::string& isa, int num_threads, int num_bursts);

struct ReadJob {
    std::size_t buffer_bytes;    // shared evenly by the threads; rounded down to whole pages for each
    std::size_t bytes_in_burst;  // read at least so many, by going over the buffer again
    int num_threads;
};

// Bytes a second for each job and round, the fastest pattern of access each time, over one buffer in huge pages. Throws
// as above, and std::bad_alloc.
std::vector<std::vector<double>> measure_reads(const std::string& isa, const std::vector<ReadJob>& jobs,
                                               int num_rounds);

}  // namespace freehold
