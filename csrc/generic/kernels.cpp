#include "kernels/table.h"
#include "vec.h"

namespace freehold {
const KernelTable& generic_kernels() { return generic::kTable; }
}  // namespace freehold
