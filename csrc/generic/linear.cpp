// The linear layers, compiled apart from the other kernels because they take the compiler longest.
// clang-format off
#include "generic/vec.h"
#include "kernels/linear.h"
// clang-format on
