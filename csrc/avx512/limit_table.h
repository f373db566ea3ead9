// Thirty-two registers of 512 bits. Compiled once with products of bf16 pairs and once without.
#pragma once

#include <immintrin.h>

#include "limit_chains.h"
#include "limit_kernels.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kChains = 16;

void fma(std::int64_t num_rounds) {
    __m512 factor = _mm512_set1_ps(0.5f);
    __m512 term = _mm512_set1_ps(0.5f);
    hide(factor);
    hide(term);
    run_chains<kChains>(_mm512_set1_ps(1.0f), num_rounds,
                        [&](__m512 sum) FREEHOLD_INLINE_LAMBDA { return _mm512_fmadd_ps(factor, term, sum); });
}

void dot(std::int64_t num_rounds) {
    __m512i weights = _mm512_set1_epi8(3);
    __m512i x = _mm512_set1_epi8(5);
    hide(weights);
    hide(x);
    run_chains<kChains>(_mm512_setzero_si512(), num_rounds,
                        [&](__m512i sum) FREEHOLD_INLINE_LAMBDA { return _mm512_dpbusd_epi32(sum, weights, x); });
}

#if defined(__AVX512BF16__)
void dot_bf16(std::int64_t num_rounds) {
    __m512i ones = _mm512_set1_epi16(0x3f80);
    hide(ones);
    run_chains<kChains>(_mm512_setzero_ps(), num_rounds, [&](__m512 sum) FREEHOLD_INLINE_LAMBDA {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(ones), reinterpret_cast<__m512bh>(ones));
    });
}
#endif

FREEHOLD_INLINE __m512i load(const std::uint8_t* p) { return _mm512_load_si512(p); }
FREEHOLD_INLINE __m512i join(__m512i a, __m512i b) { return _mm512_xor_si512(a, b); }

template <int kStreams, std::size_t kAhead>
void read(const std::uint8_t* data, std::size_t num_bytes) {
    read_streams<__m512i, kStreams, kAhead>(data, num_bytes, load, join);
}

constexpr LimitKernels kLimits = {
#if defined(__AVX512BF16__)
    .num_compute = 3,
    .compute = {{"float32", 2 * 16, 1, kChains, fma},
                {"int8", 2 * 64, 1, kChains, dot},
                {"bf16", 2 * 32, 1, kChains, dot_bf16}},
#else
    .num_compute = 2,
    .compute = {{"float32", 2 * 16, 1, kChains, fma}, {"int8", 2 * 64, 1, kChains, dot}},
#endif
    .num_reads = 3,
    .reads = {read<1, 0>, read<2, 0>, read<2, 4096>}};

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
