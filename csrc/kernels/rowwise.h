// Kernels over one row: norms, quantization, gate, and the scan of logits.
#pragma once

#include "kernels.h"
#include "kernels/exp.h"
#include "kernels/integers.h"
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

// Four groups at once, of so many vectors of 16 inputs that share one scale.
template <int Vectors>
FREEHOLD_INLINE void quantize_groups(const Activations& a, const float* x, std::int8_t* q, std::ptrdiff_t group) {
    F values[4][Vectors];
    I bits[4], sums[4];  // largest magnitudes: not finite if one isn't, so that the fault stays visible
    unrolled<4>([&](auto g) FREEHOLD_INLINE_LAMBDA {
        bits[g] = i_zero();
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            values[g][v] = f_load(x + (g * Vectors + v) * kPanel);
            bits[g] = i_max(bits[g], magnitude_bits(values[g][v]));
        });
    });
    const F magnitude = f_from_bits(i_highest4(bits[0], bits[1], bits[2], bits[3]));
    const M zero = f_less(magnitude, f_set(1e-30f));  // 127 / magnitude must stay finite
    const F factors = f_select(zero, f_zero(), f_div(f_set(127.0f), magnitude));
    const F scales = f_select(zero, f_zero(), f_div(magnitude, f_set(127.0f)));
    unrolled<4>([&](auto g) FREEHOLD_INLINE_LAMBDA {
        const F factor = f_repeat4<g>(factors);
        sums[g] = i_zero();
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            const I integers = rounded(values[g][v], factor);
            i_store_bytes(q + (g * Vectors + v) * kPanel, integers);
            sums[g] = i_add(sums[g], integers);
        });
    });
    const I totals = i_sum4(sums[0], sums[1], sums[2], sums[3]);
    i_store_every4(a.scale + group, f_bits(scales));
    i_store_every4(a.sums + group, totals);
    float* scaled = Vectors == 1 ? a.scaled_sums : a.scaled_sums32;
    i_store_every4(scaled + group, f_bits(f_mul(scales, f_from_int(totals))));
}

template <int Vectors>
FREEHOLD_INLINE void quantize_group(const Activations& a, const float* x, std::int8_t* q, std::ptrdiff_t group) {
    F values[Vectors];
    I bits = i_zero();
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        values[v] = f_load(x + v * kPanel);
        bits = i_max(bits, magnitude_bits(values[v]));
    });
    const float magnitude = bit_cast<float>(i_highest(bits));
    const bool zero = magnitude < 1e-30f;
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
    (Vectors == 1 ? a.scaled_sums : a.scaled_sums32)[group] = a.scale[group] * static_cast<float>(sum);
}

template <int Vectors>
void quantize_vectors(const Activations& a, const float* x, std::int8_t* q, std::ptrdiff_t begin, std::ptrdiff_t end) {
    constexpr int kInputs = Vectors * kPanel;
    std::ptrdiff_t group = begin;
    for (; group + 4 <= end; group += 4, x += 4 * kInputs, q += 4 * kInputs) quantize_groups<Vectors>(a, x, q, group);
    for (; group < end; ++group, x += kInputs, q += kInputs) quantize_group<Vectors>(a, x, q, group);
}

void quantize(const Activations& a, int row, int first, const float* x, int count) {
    const std::ptrdiff_t inputs = row * std::ptrdiff_t{a.stride} + first;
    const std::ptrdiff_t begin = inputs / a.group, end = begin + count / a.group;
    if (a.group == 2 * kFineGroup) return quantize_vectors<2>(a, x, a.q + inputs, begin, end);
    quantize_vectors<1>(a, x, a.q + inputs, begin, end);
    for (std::ptrdiff_t g = begin; g < end; g += 2) a.scaled_sums32[g / 2] = a.scaled_sums[g] + a.scaled_sums[g + 1];
}

void silu_mul(const float* gate, const float* up, int padded, float* out) {
    const F one = f_set(1.0f);
    for (int i = 0; i < padded; i += kPanel) {
        const F g = f_load(gate + i);
        const F silu = f_div(g, f_add(one, f_exp(f_sub(f_zero(), g))));
        f_store(out + i, f_mul(silu, f_load(up + i)));
    }
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
