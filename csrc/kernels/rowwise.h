// Kernels over one row: norms, quantization, gate, rotation, and the scan of logits.
#pragma once

#include "kernels.h"
#include "kernels/exp.h"
#include "kernels/unrolled.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

float inverse_rms(float sum_of_squares, int count, float eps) {
    return 1.0f / __builtin_sqrtf(sum_of_squares / static_cast<float>(count) + eps);
}

void rms_norm(const float* x, const float* weight, int count, int padded, float eps, float* out) {
    F squares = f_zero();
    for (int i = 0; i < padded; i += kPanel) {
        const F v = f_load(x + i);
        squares = f_fma(v, v, squares);
    }
    const F inverse = f_set(inverse_rms(f_sum(squares), count, eps));
    for (int i = 0; i < padded; i += kPanel) {
        f_store(out + i, f_mul(f_mul(f_load(x + i), inverse), f_load(weight + i)));
    }
}

// The largest magnitude; not finite if one of them isn't, so that the fault stays visible behind the integers.
FREEHOLD_INLINE I magnitude_bits(F x) { return i_and(f_bits(x), i_set(0x7fffffff)); }

FREEHOLD_INLINE I rounded(F x, F factor) {
    const F magic = f_set(12582912.0f);  // 1.5 * 2^23
    return i_sub(f_bits(f_add(f_mul(x, factor), magic)), f_bits(magic));
}

// Vectors of 16 inputs that share one scale.
template <int Vectors>
FREEHOLD_INLINE void quantize_group(const Activations& a, const float* x, std::int8_t* q, std::ptrdiff_t group) {
    F values[Vectors];
    I bits = i_zero();
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        values[v] = f_load(x + v * kPanel);
        bits = i_max(bits, magnitude_bits(values[v]));
    });
    const float magnitude = bit_cast<float>(i_highest(bits));
    const bool zero = magnitude < 1e-30f;  // 127 / magnitude must stay finite
    const F factor = f_set(zero ? 0.0f : 127.0f / magnitude);
    I sums = i_zero();
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        const I integers = rounded(values[v], factor);
        i_store_bytes(q + v * kPanel, integers);
        sums = i_add(sums, integers);
    });
    const std::int32_t sum = i_sum(sums);
    a.scale[group] = zero ? 0.0f : magnitude / 127.0f;
    a.sums[group] = sum;
}

void quantize(const Activations& a, int row) {
    const std::ptrdiff_t groups = a.stride / a.group;
    const std::ptrdiff_t first = row * groups;
    const float* x = a.x + row * std::ptrdiff_t{a.stride};
    std::int8_t* q = a.q + row * std::ptrdiff_t{a.stride};
    if (a.group == kFineGroup) {
        for (std::ptrdiff_t g = 0; g < groups; ++g) {
            quantize_group<1>(a, x + g * kFineGroup, q + g * kFineGroup, first + g);
            a.scaled_sums[first + g] = a.scale[first + g] * static_cast<float>(a.sums[first + g]);
        }
        for (std::ptrdiff_t g = first; g < first + groups; g += 2) {
            a.scaled_sums32[g / 2] = a.scaled_sums[g] + a.scaled_sums[g + 1];
        }
        return;
    }
    for (std::ptrdiff_t g = 0; g < groups; ++g) {
        quantize_group<2>(a, x + g * 2 * kFineGroup, q + g * 2 * kFineGroup, first + g);
        a.scaled_sums32[first + g] = a.scale[first + g] * static_cast<float>(a.sums[first + g]);
    }
}

void silu_mul(const float* gate, const float* up, int padded, float* out) {
    const F one = f_set(1.0f);
    for (int i = 0; i < padded; i += kPanel) {
        const F g = f_load(gate + i);
        const F silu = f_div(g, f_add(one, f_exp(f_sub(f_zero(), g))));
        f_store(out + i, f_mul(silu, f_load(up + i)));
    }
}

FREEHOLD_INLINE F load_first(const float* p, int count) {
    if (count >= kPanel) return f_load(p);
    float lanes[kPanel] = {};
    for (int i = 0; i < count; ++i) lanes[i] = p[i];
    return f_load(lanes);
}

void head_norm(float* head, const float* weight, int head_dim, float eps) {
    F squares = f_zero();
    for (int i = 0; i < head_dim; i += kPanel) {
        const F v = load_first(head + i, head_dim - i);
        squares = f_fma(v, v, squares);
    }
    const float inverse = inverse_rms(f_sum(squares), head_dim, eps);
    for (int i = 0; i < head_dim; ++i) head[i] = head[i] * inverse * weight[i];
}

void rotate(float* head, const float* cosines, const float* sines, int num_pairs, int head_dim, float scale) {
    for (int i = 0; i < num_pairs; ++i) {
        const float first = head[i];
        const float second = head[i + num_pairs];
        head[i] = first * cosines[i] - second * sines[i];
        head[i + num_pairs] = second * cosines[i] + first * sines[i];
    }
    for (int i = 0; i < head_dim; ++i) head[i] *= scale;
}

void halve_query(const float* query, int count, std::uint16_t* out) {
    for (int i = 0; i < count; ++i) out[i] = float_to_bf16(query[i] * 1.44269504f);
    if (count % 2 != 0) out[count] = 0;
}

LogitScan scan(const float* logits, int count) {
    const int whole = count / kPanel * kPanel;
    F highest = f_set(logits[0]);
    I magnitude = i_zero();
    const I no_sign = i_set(0x7fffffff);
    for (int i = 0; i < whole; i += kPanel) {
        const F v = f_load(logits + i);
        highest = f_max(highest, v);
        magnitude = i_max(magnitude, i_and(f_bits(v), no_sign));
    }
    float top = f_highest(highest);
    int largest = i_highest(magnitude);
    for (int i = whole; i < count; ++i) {
        const int bits = bit_cast<std::int32_t>(logits[i]) & 0x7fffffff;
        top = top > logits[i] ? top : logits[i];
        largest = largest > bits ? largest : bits;
    }
    if (largest >= 0x7f800000) return {top, 0, false};
    int id = 0;
    while (logits[id] != top) ++id;
    return {top, id, true};
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
