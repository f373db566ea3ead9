// Sixteen registers of 256 bits.
#include <immintrin.h>

#define FREEHOLD_ISA avx2
#include "limit_chains.h"
#include "limit_kernels.h"

namespace freehold {
namespace avx2 {
namespace {

constexpr int kChains = 12;

void fma(std::int64_t num_rounds) {
    __m256 factor = _mm256_set1_ps(0.5f);
    __m256 term = _mm256_set1_ps(0.5f);
    hide(factor);
    hide(term);
    run_chains<kChains>(_mm256_set1_ps(1.0f), num_rounds,
                        [&](__m256 sum) FREEHOLD_INLINE_LAMBDA { return _mm256_fmadd_ps(factor, term, sum); });
}

// There is no single instruction: pairs to 16 bits, pairs of those to 32, then the sum.
void dot(std::int64_t num_rounds) {
    __m256i weights = _mm256_set1_epi8(3);
    __m256i x = _mm256_set1_epi8(5);
    __m256i ones = _mm256_set1_epi16(1);
    hide(x);
    hide(ones);
    run_chains<kChains>(_mm256_setzero_si256(), num_rounds, [&](__m256i sum) FREEHOLD_INLINE_LAMBDA {
        hide(weights);  // or the product would be made once
        return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(weights, x), ones));
    });
}

FREEHOLD_INLINE __m256i load(const std::uint8_t* p) { return _mm256_load_si256(reinterpret_cast<const __m256i*>(p)); }
FREEHOLD_INLINE __m256i join(__m256i a, __m256i b) { return _mm256_xor_si256(a, b); }

template <int kStreams, std::size_t kAhead>
void read(const std::uint8_t* data, std::size_t num_bytes) {
    read_streams<__m256i, kStreams, kAhead>(data, num_bytes, load, join);
}

constexpr LimitKernels kLimits = {.num_compute = 2,
                                  .compute = {{"float32", 2 * 8, 1, kChains, fma}, {"int8", 2 * 32, 3, kChains, dot}},
                                  .num_reads = 3,
                                  .reads = {read<1, 0>, read<2, 0>, read<2, 4096>}};

}  // namespace
}  // namespace avx2

const LimitKernels& avx2_limits() { return avx2::kLimits; }

}  // namespace freehold
