// Kernels between the projections and attention, for parity tests: whole arrays in and out, every instruction set by
// name.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "bind.h"
#include "dispatch.h"
#include "kv_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freehold {
namespace {

template <class T>
nb::ndarray<nb::numpy, T> copied(const T* from, std::size_t rows, std::size_t columns) {
    auto* data = new T[rows * columns];
    std::copy_n(from, rows * columns, data);
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, {rows, columns}, owner);
}

// heads: (tokens, head_dim) of one head; angles: (tokens, cosines then sines).
nb::ndarray<nb::numpy, float> turn(const std::string& isa, Array<float, 2> heads, std::optional<Array<float, 1>> bias,
                                   std::optional<Array<float, 1>> norm_weight, float norm_eps, Array<float, 2> angles,
                                   float scale) {
    const auto head_dim = static_cast<int>(heads.shape(1));
    std::vector<float> turned(heads.data(), heads.data() + heads.size());
    std::vector<const float*> rows;
    for (std::size_t i = 0; i < angles.shape(0); ++i) rows.push_back(angles.data() + i * angles.shape(1));
    choose_kernels(isa).turn({turned.data(), head_dim, head_dim, static_cast<int>(heads.shape(0))},
                             {.bias = bias ? bias->data() : nullptr,
                              .norm_weight = norm_weight ? norm_weight->data() : nullptr,
                              .norm_eps = norm_eps,
                              .num_pairs = static_cast<int>(angles.shape(1)) / 2,
                              .angles = rows.data(),
                              .scale = scale});
    return copied(turned.data(), heads.shape(0), heads.shape(1));
}

// All bytes of blocks, (blocks, bytes), that were 0xff before one head's keys and values came, at most `each` of them
// at a time.
nb::ndarray<nb::numpy, std::uint8_t> store(const std::string& isa, Array<float, 2> keys, Array<float, 2> values,
                                           int first_pos, Array<std::int32_t, 1> block_ids, int block_size,
                                           const std::string& kv_dtype, int each) {
    Model model;
    AttentionShape& shape = model.layers.emplace_back().attention;
    shape.num_kv_heads = shape.num_heads = 1;
    shape.head_dim = static_cast<int>(keys.shape(1));
    const int num_blocks = *std::max_element(block_ids.data(), block_ids.data() + block_ids.size()) + 1;
    const KvPool pool(model, num_blocks, block_size, kv_format_named(kv_dtype));
    const std::size_t num_bytes = pool.block_bytes() * static_cast<std::size_t>(num_blocks);
    std::fill_n(pool.block(0), num_bytes, std::uint8_t{0xff});
    store_heads(choose_kernels(isa), pool.view(shape, 0, 0, block_ids.data()), first_pos, keys.data(), values.data(),
                static_cast<int>(keys.shape(0)), each);
    return copied(pool.block(0), static_cast<std::size_t>(num_blocks), pool.block_bytes());
}

}  // namespace

void store_heads(const KernelTable& kernels, const KvView& kv, int first_pos, const float* keys, const float* values,
                 int count, int each) {
    for (int done = 0; done < count;) {
        const int pos = first_pos + done;
        const int now = std::min({each, count - done, kTilePositions - pos % kTilePositions});
        const auto rows = [&](const float* of_all) {
            return HeadRows{const_cast<float*>(of_all) + std::ptrdiff_t{done} * kv.head_dim, kv.head_dim, kv.head_dim,
                            now};
        };
        kernels.store_keys(kv, pos, rows(keys));
        kernels.store_values(kv, pos, rows(values));
        done += now;
    }
}

void bind_heads(nb::module_& m) {
    m.def("turn", turn, "isa"_a, "heads"_a, "bias"_a.none(), "norm_weight"_a.none(), "norm_eps"_a, "angles"_a,
          "scale"_a);
    m.def("store", store, "isa"_a, "keys"_a, "values"_a, "first_pos"_a, "block_ids"_a, "block_size"_a, "kv_dtype"_a,
          "each"_a);
}

}  // namespace freehold
