#include "kernels/table.h"
#include "vec.h"

namespace freehold {
const KernelTable& avx2_kernels() { return avx2::kTable; }
}  // namespace freehold
