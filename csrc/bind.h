#pragma once

#include <nanobind/nanobind.h>

namespace freehold {

class Device;

// Adds what loads a model.
void bind_builder(nanobind::module_& m);

// Adds single kernels to the submodule that parity tests call.
void bind_kernels(nanobind::module_& m);

// Adds what measures the machine's limits.
void bind_limits(nanobind::module_& m);

// What `Device::stop_profile` gives, as arrays; None if no profile was taken.
nanobind::object stop_profile(Device& device);

}  // namespace freehold
