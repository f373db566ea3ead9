// The linear layers, compiled apart from the other kernels because they take the compiler longest.
// For avx512bf16 too: the linear kernels have no use for bf16 products.
// clang-format off
#include "avx512/vec.h"
#include "kernels/linear.h"
// clang-format on
