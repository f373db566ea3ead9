#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "kernels.h"

namespace freehold {

class Device;

// An array that Python lends, row by row without gaps.
template <class T, int Dims>
using Array = nanobind::ndarray<const T, nanobind::ndim<Dims>, nanobind::c_contig, nanobind::device::cpu>;

// Adds what loads a model.
void bind_builder(nanobind::module_& m);

// Adds single kernels to the submodule that parity tests call.
void bind_kernels(nanobind::module_& m);

// Adds those of them that bring heads to attention.
void bind_heads(nanobind::module_& m);
// Stores `count` keys and values, (count, head_dim), from position `first_pos` on; at most `each` at a time.
void store_heads(const KernelTable& kernels, const KvView& kv, int first_pos, const float* keys, const float* values,
                 int count, int each);

// Adds what measures the machine's limits.
void bind_limits(nanobind::module_& m);

// What `Device::stop_profile` gives, as arrays; None if no profile was taken.
nanobind::object stop_profile(Device& device);

}  // namespace freehold
