#pragma once

#include <nanobind/nanobind.h>

namespace freehold {

// Adds what loads a model.
void bind_builder(nanobind::module_& m);

// Adds single kernels to the submodule that parity tests call.
void bind_kernels(nanobind::module_& m);

// Adds what measures the machine's limits.
void bind_limits(nanobind::module_& m);

}  // namespace freehold
