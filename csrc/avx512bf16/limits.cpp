// AVX-512 with products of bf16 pairs.
#define FREEHOLD_ISA avx512bf16
#include "avx512/limit_table.h"

namespace freehold {
const LimitKernels& avx512bf16_limits() { return avx512bf16::kLimits; }
}  // namespace freehold
