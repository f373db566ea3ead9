// Independent chains of one instruction, in registers from the first round to the last. A processor needs as many of
// them at once as the instruction's latency times its units; chains that spill to memory read far too low.
// Included by each instruction set's limits.cpp, which defines FREEHOLD_ISA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inlining.h"
#include "kernels/unrolled.h"

// Where a vector is kept, as inline assembly spells it.
#if defined(__AVX512F__)
#define FREEHOLD_VECTOR "v"
#elif defined(__x86_64__)
#define FREEHOLD_VECTOR "x"
#elif defined(__aarch64__)
#define FREEHOLD_VECTOR "w"
#else
#define FREEHOLD_VECTOR "m"
#endif

namespace freehold::FREEHOLD_ISA {
namespace {

// From here on the compiler knows nothing about the value. It emits nothing for this.
template <class V>
FREEHOLD_INLINE void hide(V& value) {
    asm volatile("" : "+" FREEHOLD_VECTOR(value));
}

// Calls chain = step(chain) num_rounds times for each of the chains.
template <int kChains, class V, class Step>
FREEHOLD_INLINE void run_chains(V start, std::int64_t num_rounds, Step&& step) {
    V chains[kChains];
    unrolled<kChains>([&](auto i) FREEHOLD_INLINE_LAMBDA {
        chains[i] = start;
        hide(chains[i]);  // equal chains would become one
    });
    for (std::int64_t round = 0; round < num_rounds; ++round) {
        unrolled<kChains>([&](auto i) FREEHOLD_INLINE_LAMBDA { chains[i] = step(chains[i]); });
    }
    unrolled<kChains>([&](auto i) FREEHOLD_INLINE_LAMBDA { hide(chains[i]); });
}

// Reads kStreams parts of the data side by side, eight vectors a round, with a prefetch kAhead bytes before each line.
template <class V, int kStreams, std::size_t kAhead, class Load, class Join>
FREEHOLD_INLINE void read_streams(const std::uint8_t* data, std::size_t num_bytes, Load&& load, Join&& join) {
    constexpr int kVectors = 8 / kStreams;
    const std::size_t part_bytes = num_bytes / kStreams;
    V sums[8];
    unrolled<8>([&](auto i) FREEHOLD_INLINE_LAMBDA {
        sums[i] = V{};
        hide(sums[i]);
    });
    for (std::size_t at = 0; at < part_bytes; at += kVectors * sizeof(V)) {
        unrolled<8>([&](auto i) FREEHOLD_INLINE_LAMBDA {
            constexpr std::size_t kStream = static_cast<std::size_t>(i) / kVectors;
            constexpr std::size_t kOffset = static_cast<std::size_t>(i) % kVectors * sizeof(V);
            const std::uint8_t* p = data + kStream * part_bytes + at + kOffset;
            if constexpr (kAhead > 0 && kOffset % 64 == 0) __builtin_prefetch(p + kAhead, 0, 2);
            sums[i] = join(sums[i], load(p));
        });
    }
    unrolled<8>([&](auto i) FREEHOLD_INLINE_LAMBDA { hide(sums[i]); });
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
