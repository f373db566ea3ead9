// AVX-512 with products of bf16 pairs: avx512/vec.h, compiled for processors that have them.
// clang-format off
#include "avx512/vec.h"
#include "kernels/table.h"
// clang-format on

namespace freehold {
const KernelTable& avx512bf16_kernels() { return avx512bf16::kTable; }
}  // namespace freehold
