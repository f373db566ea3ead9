// The instruction set's vectors come first: the kernels are written over them.
// clang-format off
#include "avx2/vec.h"
#include "kernels/table.h"
// clang-format on

namespace freehold {
const KernelTable& avx2_kernels() { return avx2::kTable; }
}  // namespace freehold
