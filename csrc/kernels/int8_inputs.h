// Quantized activations as the tiles of a linear layer read them.
#pragma once

#include "kernels.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// One row's quantized activations, and how far the next row's are.
struct Int8Rows {
    const std::int8_t* q;
    const float* scale;
    const std::int32_t* sums;
    const float* minimum_sums;
    int stride, scale_stride, minimum_stride;
};

template <const Layout& L, int Part>
FREEHOLD_INLINE Int8Rows int8_rows(const Activations& a, int row) {
    const std::ptrdiff_t scales = a.stride / Part;
    const std::ptrdiff_t groups = a.stride / L.group;
    return {a.q + static_cast<std::ptrdiff_t>(row) * a.stride,
            a.scale + row * scales,
            a.sums + row * scales,
            (L.group == 32 ? a.scaled_sums32 : a.scaled_sums) + row * groups,
            a.stride,
            static_cast<int>(scales),
            static_cast<int>(groups)};
}

constexpr int log2_of(int power) { return power <= 1 ? 0 : 1 + log2_of(power / 2); }

// What the dot products of a part begin with, `sum` being that of its activations: weights are stored with an offset.
template <const Layout& L>
FREEHOLD_INLINE I dot_start(std::int32_t sum) {
    if constexpr (L.offset == 0) return i_zero();
    return i_sub(i_zero(), i_shift_left<log2_of(L.offset)>(i_set(sum)));
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
