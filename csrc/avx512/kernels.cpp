// The instruction set's vectors come first: the kernels are written over them.
// clang-format off
#include "avx512/vec.h"
#include "kernels/table.h"
// clang-format on

namespace freehold {
const KernelTable& avx512_kernels() { return avx512::kTable; }
}  // namespace freehold
