// The digest of a row of logits.
#pragma once

#include "kernels.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// A plain loop over integers, whose sum may be taken in any order: compilers make vectors of it themselves.
std::uint64_t digest(const float* logits, int count) {
    std::uint64_t sum = 0;
    for (int i = 0; i < count; ++i) {
        std::uint64_t x = static_cast<std::uint64_t>(i) << 32 | bit_cast<std::uint32_t>(logits[i]);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        sum += x ^ (x >> 31);
    }
    return sum;
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
