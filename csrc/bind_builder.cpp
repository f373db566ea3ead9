// Loading, as Python sees it: shapes, where matrices lie, packing, and packed weights that were kept.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <climits>
#include <memory>
#include <optional>
#include <tuple>

#include "bind.h"
#include "builder.h"
#include "device.h"
#include "dispatch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freehold {
namespace {

std::unique_ptr<Builder> make_builder(int vocab_size, int hidden_size, float norm_eps, bool tied_embeddings,
                                      std::size_t arena_bytes, int num_threads, bool integer_scales) {
    auto model = std::make_unique<Model>();
    model->vocab_size = vocab_size;
    model->hidden_size = hidden_size;
    model->norm_eps = norm_eps;
    model->tied_embeddings = tied_embeddings;
    return std::make_unique<Builder>(std::move(model), arena_bytes, num_threads, integer_scales);
}

int add_rope(Builder& builder, Array<float, 1> inv_freq, double attention_factor) {
    std::vector<RopeTable>& ropes = builder.model().ropes;
    ropes.emplace_back(std::vector<float>(inv_freq.data(), inv_freq.data() + inv_freq.size()), attention_factor);
    return static_cast<int>(ropes.size()) - 1;
}

void add_layer(Builder& builder, int num_heads, int num_kv_heads, int head_dim, float scale, std::optional<int> window,
               int rope, bool qk_norm, bool qkv_bias, int mlp_size) {
    Layer layer;
    layer.attention = {.num_heads = num_heads,
                       .num_kv_heads = num_kv_heads,
                       .head_dim = head_dim,
                       .window = window.value_or(INT_MAX),
                       .rope = rope,
                       .scale = scale,
                       .qk_norm = qk_norm,
                       .qkv_bias = qkv_bias};
    layer.mlp_size = mlp_size;
    builder.model().layers.push_back(std::move(layer));
}

std::vector<std::int32_t> row_order(Array<std::int32_t, 1> order) {
    return {order.data(), order.data() + order.size()};
}

void add_matrix(Builder& builder, const std::string& slot, std::optional<int> layer, const std::string& source,
                int num_outputs, int num_inputs, Array<std::uint8_t, 1> data, Array<std::int32_t, 1> order) {
    builder.add_matrix(slot, layer.value_or(0), source_named(source), num_outputs, num_inputs,
                       RowsInMemory{data.data()}, data.size(), row_order(order));
}

// `place`: descriptor of the open file, first byte, bytes.
void add_file_matrix(Builder& builder, const std::string& slot, std::optional<int> layer, const std::string& source,
                     int num_outputs, int num_inputs, std::tuple<int, std::int64_t, std::int64_t> place,
                     Array<std::int32_t, 1> order) {
    const auto [descriptor, start, num_bytes] = place;
    if (start < 0 || num_bytes < 0) throw std::invalid_argument("a file has no bytes before its beginning");
    builder.add_matrix(slot, layer.value_or(0), source_named(source), num_outputs, num_inputs,
                       RowsInFile{descriptor, static_cast<off_t>(start)}, static_cast<std::size_t>(num_bytes),
                       row_order(order));
}

// None, or (number of the matrix that couldn't be read, errno or 0 at the file's end).
std::optional<std::tuple<std::size_t, int>> pack_matrices(Builder& builder) {
    const nb::gil_scoped_release unlocked;
    const std::optional<ReadFailure> failure = builder.pack();
    if (!failure) return std::nullopt;
    return std::make_tuple(failure->matrix, failure->error);
}

// None, or what is wrong with the file.
std::optional<std::string> read_matrices(Builder& builder, int descriptor, std::int64_t start,
                                         Array<std::uint64_t, 1> checksums) {
    const std::vector<std::uint64_t> expected(checksums.data(), checksums.data() + checksums.size());
    const nb::gil_scoped_release unlocked;
    return builder.read(descriptor, static_cast<off_t>(start), expected);
}

// The arena's bytes, which stay as long as the array.
nb::ndarray<nb::numpy, const std::uint8_t> packed_weights(const Builder& builder) {
    auto* arena = new std::shared_ptr<const Region>(builder.arena());
    const nb::capsule owner(arena, [](void* p) noexcept { delete static_cast<std::shared_ptr<const Region>*>(p); });
    return {(*arena)->data(), {(*arena)->size()}, owner};
}

nb::ndarray<nb::numpy, std::uint64_t> checksum_array(Array<std::uint8_t, 1> data) {
    auto all = std::make_unique<std::vector<std::uint64_t>>();
    {
        const nb::gil_scoped_release unlocked;
        *all = chunk_checksums(data.data(), data.size());
    }
    std::uint64_t* values = all->data();
    const std::size_t count = all->size();
    const nb::capsule owner(all.release(),
                            [](void* p) noexcept { delete static_cast<std::vector<std::uint64_t>*>(p); });
    return {values, {count}, owner};
}

std::unique_ptr<Device> open_device(Builder& builder, const std::string& isa, int num_blocks, int block_size,
                                    int max_rows, int max_tokens, int num_threads, const std::string& kv_dtype,
                                    bool int8) {
    return builder.open(choose_kernels(isa), {.num_blocks = num_blocks,
                                              .block_size = block_size,
                                              .max_rows = max_rows,
                                              .max_tokens = max_tokens,
                                              .num_threads = num_threads,
                                              .kv_format = kv_format_named(kv_dtype),
                                              .int8 = int8});
}

}  // namespace

void bind_builder(nb::module_& m) {
    m.def(
        "packed_bytes",
        [](const std::string& slot, const std::string& source, int num_outputs, int num_inputs, bool integer_scales,
           bool tied_embeddings) {
            return slot_shape(slot, source_named(source), num_outputs, num_inputs, integer_scales, tied_embeddings)
                .num_bytes();
        },
        "slot"_a, "source"_a, "num_outputs"_a, "num_inputs"_a, "integer_scales"_a = false, "tied_embeddings"_a = false);
    m.def("packing_description", packing_description, "integer_scales"_a = false);
    m.def("chunk_checksums", checksum_array, "data"_a);
    nb::class_<Builder>(m, "Builder")
        .def_static("make", make_builder, "vocab_size"_a, "hidden_size"_a, "norm_eps"_a, "tied_embeddings"_a,
                    "arena_bytes"_a, "num_threads"_a, "integer_scales"_a = false)
        .def("add_rope", add_rope, "inv_freq"_a, "attention_factor"_a)
        .def("add_layer", add_layer, nb::kw_only(), "num_heads"_a, "num_kv_heads"_a, "head_dim"_a, "scale"_a,
             "window"_a.none(), "rope"_a, "qk_norm"_a, "qkv_bias"_a, "mlp_size"_a)
        .def("add_matrix", add_matrix, "slot"_a, "layer"_a.none(), "source"_a, "num_outputs"_a, "num_inputs"_a,
             "data"_a, "order"_a, nb::keep_alive<1, 7>())
        .def("add_file_matrix", add_file_matrix, "slot"_a, "layer"_a.none(), "source"_a, "num_outputs"_a,
             "num_inputs"_a, "place"_a, "order"_a)
        .def("pack", pack_matrices)
        .def("read", read_matrices, "descriptor"_a, "start"_a, "checksums"_a)
        .def("packed_weights", packed_weights)
        .def_prop_ro("packing_s", &Builder::packing_s)
        .def(
            "set_vector",
            [](Builder& builder, const std::string& slot, std::optional<int> layer, Array<float, 1> values) {
                builder.set_vector(slot, layer.value_or(0), values.data(), values.size());
            },
            "slot"_a, "layer"_a.none(), "values"_a)
        .def("layouts", &Builder::layouts)
        .def("open", open_device, nb::kw_only(), "isa"_a, "num_blocks"_a, "block_size"_a, "max_rows"_a, "max_tokens"_a,
             "num_threads"_a, "kv_dtype"_a, "int8"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace freehold
