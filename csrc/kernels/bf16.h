// Rounding of rows to bf16. Needs an ISA's vec.h before it.
#pragma once

#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// bf16 of the first `count` elements times `factor`.
FREEHOLD_INLINE void to_bf16(const float* x, int count, float factor, std::uint16_t* out) {
    int i = 0;
    for (; i + kPanel <= count; i += kPanel) f_store_bf16(out + i, f_mul(f_load(x + i), f_set(factor)));
    for (; i < count; ++i) out[i] = float_to_bf16(x[i] * factor);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
