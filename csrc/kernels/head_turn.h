// Heads between their projection and attention: bias, norm and rotation. Needs an ISA's vec.h before it.
#pragma once

#include "kernels.h"
#include "kernels/integers.h"
#include "kernels/rowwise.h"

namespace freehold::FREEHOLD_ISA {
namespace {

FREEHOLD_INLINE void add_bias(float* head, const float* bias, int head_dim) {
    for (int i = 0; i < head_dim; ++i) head[i] += bias[i];
}

FREEHOLD_INLINE void head_norm(float* head, const float* weight, int head_dim, float eps) {
    F squares = f_zero();
    for (int i = 0; i < head_dim; i += kPanel) {
        const F v = load_first(head + i, head_dim - i);
        squares = f_fma(v, v, squares);
    }
    const float inverse = inverse_rms(f_sum(squares), head_dim, eps);
    for (int i = 0; i < head_dim; ++i) head[i] = head[i] * inverse * weight[i];
}

FREEHOLD_INLINE void rotate(float* head, const float* cosines, int num_pairs, int head_dim, float scale) {
    const float* sines = cosines + num_pairs;
    float* second_half = head + num_pairs;
    const F all = f_set(scale);
    int i = 0;
    for (; i + kPanel <= num_pairs; i += kPanel) {
        const F first = f_load(head + i), second = f_load(second_half + i);
        const F cosine = f_load(cosines + i), sine = f_load(sines + i);
        f_store(head + i, f_mul(f_sub(f_mul(first, cosine), f_mul(second, sine)), all));
        f_store(second_half + i, f_mul(f_add(f_mul(second, cosine), f_mul(first, sine)), all));
    }
    for (; i < num_pairs; ++i) {
        const float first = head[i], second = second_half[i];
        head[i] = (first * cosines[i] - second * sines[i]) * scale;
        second_half[i] = (second * cosines[i] + first * sines[i]) * scale;
    }
    for (i = 2 * num_pairs; i < head_dim; ++i) head[i] *= scale;
}

void turn(const HeadRows& heads, const HeadTurn& turn) {
    for (int i = 0; i < heads.count; ++i) {
        float* head = heads.row(i);
        if (turn.bias != nullptr) add_bias(head, turn.bias, heads.head_dim);
        if (turn.norm_weight != nullptr) head_norm(head, turn.norm_weight, heads.head_dim, turn.norm_eps);
        if (turn.angles != nullptr) rotate(head, turn.angles[i], turn.num_pairs, heads.head_dim, turn.scale);
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
