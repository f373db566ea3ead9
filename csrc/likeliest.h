// The likeliest tokens of a row, without sorting the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"

namespace freehold {

// Fills `likeliest` with the `count` allowed tokens of the highest logits, or all if there are fewer: highest first,
// among equals the lowest id first. Logits are finite and readable up to a multiple of 16; `spare` is as long as the
// vocabulary.
void find_likeliest(const KernelTable& kernels, const float* logits, int vocab_size, const std::uint32_t* allowed,
                    int count, std::vector<std::int32_t>& spare, std::vector<std::int32_t>& likeliest);

}  // namespace freehold
