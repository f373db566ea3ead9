#include "kernels/table.h"
#include "vec.h"

namespace freehold {
const KernelTable& avx512_kernels() { return avx512::kTable; }
}  // namespace freehold
