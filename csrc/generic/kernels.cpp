// The instruction set's vectors come first: the kernels are written over them.
// clang-format off
#include "generic/vec.h"
#include "kernels/table.h"
// clang-format on

namespace freehold {
const KernelTable& generic_kernels() { return generic::kTable; }
}  // namespace freehold
