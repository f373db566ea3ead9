#define FREEHOLD_ISA avx512
#include "avx512/limit_table.h"

namespace freehold {
const LimitKernels& avx512_limits() { return avx512::kLimits; }
}  // namespace freehold
