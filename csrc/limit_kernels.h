// What an instruction set brings to the measuring of limits. Plain data: these files are compiled for processors that
// others lack, and must not leave templates of the standard library behind for the linker to choose.
#pragma once

#include <cstddef>
#include <cstdint>

namespace freehold {

// One kind of arithmetic. A step is what an independent chain does at a time: one instruction, or the shortest sequence
// where there is no single one.
struct ComputeKernel {
    const char* kind;         // "float32", "bf16" (products of pairs) or "int8" (dot products of four)
    int operations_per_step;  // a multiplication and an addition are two
    int instructions_per_step;
    int steps_per_round;
    void (*run)(std::int64_t num_rounds);
};

// Reads num_bytes, a multiple of 4 KiB, from an address aligned to as much.
using ReadKernel = void (*)(const std::uint8_t* data, std::size_t num_bytes);

struct LimitKernels {
    int num_compute;
    ComputeKernel compute[3];
    int num_reads;
    ReadKernel reads[3];  // patterns of access; which is fastest depends on the processor's prefetchers
};

const LimitKernels& generic_limits();
#if defined(__x86_64__)
const LimitKernels& avx2_limits();
const LimitKernels& avx512_limits();
const LimitKernels& avx512bf16_limits();
#endif

}  // namespace freehold
