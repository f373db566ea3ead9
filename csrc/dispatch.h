// Chooses the kernels for this processor. Compiled without any ISA extension.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace freehold {

// Instruction sets that this processor runs, best first; the last is always "generic".
std::vector<std::string> available_isas();

// The kernels of the best available instruction set that is no higher than `highest` (empty: no limit).
// Throws std::invalid_argument if `highest` is unknown or the processor lacks it.
const KernelTable& choose_kernels(const std::string& highest);

}  // namespace freehold
