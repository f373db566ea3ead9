// Single kernels for parity tests: whole arrays in and out, every instruction set by name.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "bind.h"
#include "builder.h"
#include "dispatch.h"
#include "kv_pool.h"
#include "logprobs.h"
#include "scratch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freehold {
namespace {

using Floats = nb::ndarray<nb::numpy, float>;

Floats new_array(std::size_t rows, std::size_t columns) {
    auto* data = new float[rows * columns]();
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return Floats(data, {rows, columns}, owner);
}

// Rows padded to whole strips, as kernels want them.
struct PaddedRows {
    PaddedRows(Array<float, 2> rows)
        : num_rows(static_cast<int>(rows.shape(0))),
          width(static_cast<int>(rows.shape(1))),
          stride(round_up(width, kStrip)),
          data(static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(stride)) {
        for (int r = 0; r < num_rows; ++r) std::copy_n(rows.data() + std::ptrdiff_t{r} * width, width, row(r));
    }
    float* row(int r) { return data.data() + static_cast<std::ptrdiff_t>(r) * stride; }
    int num_rows, width, stride;
    std::vector<float> data;
};

class PackedMatrix {
  public:
    PackedMatrix(const std::string& source, int num_outputs, int num_inputs, Array<std::uint8_t, 1> raw,
                 bool integer_scales, Team& team)
        : matrix_(packed_shape(source_named(source), num_outputs, num_inputs, integer_scales)),
          region_(matrix_.num_bytes(), false) {
        pack(matrix_, source_named(source), raw.data(), region_.data(), team);
    }
    const Matrix& get() const { return matrix_; }

  private:
    Matrix matrix_;
    Region region_;
};

Floats unpack(const std::string& source, int num_outputs, int num_inputs, Array<std::uint8_t, 1> raw, int num_threads,
              bool integer_scales) {
    Team team(num_threads);
    const PackedMatrix matrix(source, num_outputs, num_inputs, raw, integer_scales, team);
    Floats out = new_array(static_cast<std::size_t>(num_outputs), static_cast<std::size_t>(num_inputs));
    for (int n = 0; n < num_outputs; ++n) unpack_row(matrix.get(), n, out.data() + std::ptrdiff_t{n} * num_inputs);
    return out;
}

// The bytes of a packed matrix; `by_groups`: through the slow twin.
nb::bytes packed(const std::string& source, int num_outputs, int num_inputs, Array<std::uint8_t, 1> raw, bool by_groups,
                 bool integer_scales) {
    const SourceType type = source_named(source);
    const Matrix matrix = packed_shape(type, num_outputs, num_inputs, integer_scales);
    const std::size_t row_bytes = source_of(type).row_bytes(num_inputs);
    if (raw.size() != row_bytes * static_cast<std::size_t>(num_outputs)) throw std::invalid_argument("too few rows");
    std::string strips(matrix.num_bytes(), '\xff');
    for (int first = 0; first < num_outputs; first += kStrip) {
        const int num_rows = std::min(kStrip, num_outputs - first);
        const std::uint8_t* rows[kStrip];
        for (int i = 0; i < num_rows; ++i) rows[i] = raw.data() + row_bytes * static_cast<std::size_t>(first + i);
        auto* strip = reinterpret_cast<std::uint8_t*>(strips.data()) +
                      matrix.strip_bytes() * static_cast<std::size_t>(first / kStrip);
        (by_groups ? pack_strip_by_groups : pack_strip)(matrix, type, rows, num_rows, strip);
    }
    return nb::bytes(strips.data(), strips.size());
}

// Quantized activations with memory of their own.
struct OwnedActivations {
    OwnedActivations(PaddedRows& rows, int group) {
        const std::size_t size = rows.data.size();
        q.resize(size);
        scale.resize(size / static_cast<std::size_t>(group));
        sums.resize(scale.size());
        scaled_sums.resize(size / 16);
        scaled_sums32.resize(size / 32);
        records.resize(static_cast<std::size_t>(rows.num_rows * records_stride(rows.stride, group)));
        tops.resize(static_cast<std::size_t>(rows.num_rows));
        view = {rows.data.data(),     q.data(),       scale.data(), sums.data(), scaled_sums.data(),
                scaled_sums32.data(), records.data(), tops.data(),  rows.stride, group};
    }
    std::vector<std::int8_t> q;
    std::vector<float> scale, scaled_sums, scaled_sums32;
    std::vector<std::int32_t> sums;
    std::vector<std::uint8_t> records;
    std::vector<float> tops;
    Activations view;
};

Floats linear(const std::string& isa, const std::string& source, int num_outputs, Array<std::uint8_t, 1> raw,
              Array<float, 2> x, bool int8, int group, int strips_each, bool integer_scales) {
    const KernelTable& kernels = choose_kernels(isa);
    Team team(1);
    PaddedRows rows(x);
    const PackedMatrix packed(source, num_outputs, rows.width, raw, integer_scales, team);
    const Matrix& m = packed.get();
    OwnedActivations activations(rows, group);
    if (int8 && layout_of(m.layout).quantized()) {
        for (int r = 0; r < rows.num_rows; ++r) {
            kernels.quantize(activations.view, r, 0, rows.row(r), rows.stride);
            if (kernels.integer_scales) kernels.fill_records(activations.view, r);
        }
    }
    const int stride = m.padded_outputs();
    Floats padded = new_array(static_cast<std::size_t>(rows.num_rows), static_cast<std::size_t>(stride));
    for (int begin = 0; begin < m.num_strips(); begin += strips_each) {
        kernels.linear({.weights = m.data,
                        .strip_bytes = m.strip_bytes(),
                        .layout = m.layout,
                        .num_inputs = m.num_inputs,
                        .strip_begin = begin,
                        .strip_end = std::min(begin + strips_each, m.num_strips()),
                        .input = &activations.view,
                        .row_begin = 0,
                        .row_end = rows.num_rows,
                        .out = padded.data(),
                        .out_stride = stride,
                        .add = false,
                        .int8 = int8});
    }
    return padded;
}

// (values as floats, scales): what int8 activations become.
nb::tuple quantize(const std::string& isa, Array<float, 2> x, int group) {
    PaddedRows rows(x);
    OwnedActivations activations(rows, group);
    for (int r = 0; r < rows.num_rows; ++r) {
        choose_kernels(isa).quantize(activations.view, r, 0, rows.row(r), rows.stride);
    }
    const auto num_rows = static_cast<std::size_t>(rows.num_rows);
    Floats q = new_array(num_rows, static_cast<std::size_t>(rows.stride));
    Floats scale = new_array(num_rows, static_cast<std::size_t>(rows.stride / group));
    std::copy(activations.q.begin(), activations.q.end(), q.data());
    std::copy(activations.scale.begin(), activations.scale.end(), scale.data());
    return nb::make_tuple(q, scale);
}

Floats rms_norm(const std::string& isa, Array<float, 2> x, Array<float, 1> weight, float eps) {
    PaddedRows rows(x);
    std::vector<float> padded(weight.data(), weight.data() + weight.size());
    padded.resize(static_cast<std::size_t>(rows.stride));
    Floats out = new_array(static_cast<std::size_t>(rows.num_rows), static_cast<std::size_t>(rows.stride));
    for (int r = 0; r < rows.num_rows; ++r) {
        choose_kernels(isa).rms_norm(rows.row(r), padded.data(), rows.width, rows.stride, eps,
                                     out.data() + std::ptrdiff_t{r} * rows.stride);
    }
    return out;
}

Floats silu_mul(const std::string& isa, Array<float, 2> gate, Array<float, 2> up) {
    PaddedRows gates(gate);
    PaddedRows ups(up);
    Floats out = new_array(static_cast<std::size_t>(gates.num_rows), static_cast<std::size_t>(gates.stride));
    for (int r = 0; r < gates.num_rows; ++r) {
        choose_kernels(isa).silu_mul(gates.row(r), ups.row(r), gates.stride,
                                     out.data() + std::ptrdiff_t{r} * gates.stride);
    }
    return out;
}

// One key/value head: keys and values (positions, E) go to blocks in the order of `block_ids`; queries (tokens, heads *
// E) stand at the last positions, `tokens_each` of them are computed at a time. Returns (tokens, heads * E).
Floats attend(const std::string& isa, Array<float, 2> queries, Array<float, 2> keys, Array<float, 2> values,
              Array<std::int32_t, 1> block_ids, int block_size, const std::string& kv_dtype, std::optional<int> window,
              int tokens_each, bool bf16_dot) {
    const KernelTable& kernels = choose_kernels(isa);
    const int head_dim = static_cast<int>(keys.shape(1));
    const int num_positions = static_cast<int>(keys.shape(0));
    const int num_tokens = static_cast<int>(queries.shape(0));
    const int width = static_cast<int>(queries.shape(1));
    Model model;
    Layer layer;
    layer.attention.num_heads = width / head_dim;
    layer.attention.num_kv_heads = 1;
    layer.attention.head_dim = head_dim;
    model.layers.push_back(layer);
    const int num_blocks = *std::max_element(block_ids.data(), block_ids.data() + block_ids.size()) + 1;
    const KvPool pool(model, num_blocks, block_size, kv_format_named(kv_dtype));
    // Fresh memory is zero; stale blocks are not: NaN everywhere, so that a masked position that is read shows.
    std::fill_n(pool.block(0), pool.block_bytes() * static_cast<std::size_t>(num_blocks), std::uint8_t{0xff});
    const KvView kv = pool.view(layer.attention, 0, 0, block_ids.data());
    store_heads(kernels, kv, 0, keys.data(), values.data(), num_positions, kTilePositions);
    const int heads = width / head_dim;
    const int stride = partial_stride(kv.value_stride);
    Floats out = new_array(queries.shape(0), queries.shape(1));
    const bool dot = kv.format == KvFormat::bf16 && bf16_dot && kernels.bf16_dot;
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(num_tokens * width + 1));
    const std::ptrdiff_t int8_stride = std::ptrdiff_t{heads} * int8_query_bytes(head_dim);
    std::vector<std::uint8_t> int8_queries(static_cast<std::size_t>(num_tokens * int8_stride));
    const HeadRows all{const_cast<float*>(queries.data()), width, width, num_tokens};
    kernels.halve_queries(all, halves.data(), width);
    for (int t = 0; t < num_tokens; ++t) {
        const float* row = queries.data() + std::ptrdiff_t{t} * width;
        for (int h = 0; h < heads; ++h) {
            kernels.quantize_query(row + h * head_dim, head_dim,
                                   int8_queries.data() + t * int8_stride + h * int8_query_bytes(head_dim));
        }
    }
    for (int first = 0; first < num_tokens; first += tokens_each) {
        const AttendCall call{.kv = kv,
                              .queries = queries.data() + std::ptrdiff_t{first} * width,
                              .half_queries = dot ? halves.data() + std::ptrdiff_t{first} * width : nullptr,
                              .int8_queries = int8_queries.data() + first * int8_stride,
                              .int8_stride = int8_stride,
                              .query_stride = width,
                              .num_heads = heads,
                              .first_pos = num_positions - num_tokens + first,
                              .num_tokens = std::min(tokens_each, num_tokens - first),
                              .window = window.value_or(INT_MAX)};
        std::vector<float> state(static_cast<std::size_t>(tokens_each * heads * stride));
        for (std::size_t q = 0; q < state.size(); q += static_cast<std::size_t>(stride)) state[q] = -INFINITY;
        const int last_piece = (call.first_pos + call.num_tokens - 1) / kPiece;
        for (int piece = 0; piece <= last_piece; ++piece) {
            kernels.attend_piece(call, piece, state.data());
        }
        for (int q = 0; q < call.num_tokens * heads; ++q) {
            kernels.finish(state.data() + q * stride, head_dim,
                           out.data() + std::ptrdiff_t{first} * width + q * head_dim);
        }
    }
    return out;
}

// Logits as kernels want them: readable up to whole strips.
std::vector<float> padded_logits(Array<float, 1> logits) {
    std::vector<float> padded(logits.data(), logits.data() + logits.size());
    padded.resize(static_cast<std::size_t>(round_up(static_cast<int>(logits.size()), kStrip)));
    return padded;
}

// (id, whether the logits are afterwards what they were)
nb::tuple sample_id(const std::string& isa, Array<float, 1> logits, const SamplingRules& rules, std::uint32_t pos,
                    Array<std::int32_t, 1> context_ids, std::optional<Array<std::uint32_t, 1>> allowed) {
    const KernelTable& kernels = choose_kernels(isa);
    const int size = static_cast<int>(logits.size());
    std::vector<float> padded = padded_logits(logits);
    SamplePlace place;
    place.pos = pos;
    place.allowed = allowed ? allowed->data() : nullptr;
    // In two parts, as a step has it.
    const int num_ids = static_cast<int>(context_ids.size());
    place.context = {context_ids.data(), num_ids / 2, context_ids.data() + num_ids / 2, num_ids - num_ids / 2};
    SamplerScratch scratch(size);
    const std::int32_t id =
        sample(kernels, padded.data(), size, kernels.scan(padded.data(), size), rules, place, scratch);
    return nb::make_tuple(id, std::memcmp(padded.data(), logits.data(), logits.size() * sizeof(float)) == 0);
}

nb::tuple logprobs(const std::string& isa, Array<float, 1> logits, std::int32_t token_id, int num_top) {
    const KernelTable& kernels = choose_kernels(isa);
    const int size = static_cast<int>(logits.size());
    const std::vector<float> padded = padded_logits(logits);
    std::vector<std::int32_t> spare(logits.size());
    const TokenLogprobs found =
        logprobs_of(kernels, padded.data(), size, kernels.scan(padded.data(), size), token_id, num_top, spare);
    nb::list top;
    for (const auto& [id, logprob] : found.top) top.append(nb::make_tuple(id, logprob));
    return nb::make_tuple(found.logprob, found.rank, nb::tuple(top));
}

// Each rule by name, as in `freehold.backends.base.RowSampling`.
SamplingRules make_rules(nb::handle from) {
    const auto number = [&](const char* name) { return nb::cast<double>(from.attr(name)); };
    SamplingRules rules;
    rules.temperature = number("temperature");
    rules.top_p = number("top_p");
    rules.min_p = number("min_p");
    rules.top_k = nb::cast<std::int64_t>(from.attr("top_k"));
    rules.seed = nb::cast<std::uint64_t>(from.attr("seed"));
    rules.choice = nb::cast<std::uint32_t>(from.attr("choice"));
    rules.presence_penalty = number("presence_penalty");
    rules.frequency_penalty = number("frequency_penalty");
    rules.repetition_penalty = number("repetition_penalty");
    rules.num_prompt = nb::cast<int>(from.attr("num_prompt_tokens"));
    rules.min_end_pos = rules.num_prompt + nb::cast<int>(from.attr("min_tokens"));
    for (nb::handle id : from.attr("stop_ids")) rules.stop_ids.push_back(nb::cast<std::int32_t>(id));
    for (nb::handle pair : from.attr("logit_bias")) {
        rules.bias_ids.push_back(nb::cast<std::int32_t>(pair[0]));
        rules.biases.push_back(nb::cast<double>(pair[1]));
    }
    return rules;
}

}  // namespace

void bind_kernels(nb::module_& m) {
    bind_heads(m);
    m.def("packed", packed, "source"_a, "num_outputs"_a, "num_inputs"_a, "raw"_a, "by_groups"_a,
          "integer_scales"_a = false);
    m.def("unpack", unpack, "source"_a, "num_outputs"_a, "num_inputs"_a, "raw"_a, "num_threads"_a,
          "integer_scales"_a = false);
    m.def("linear", linear, "isa"_a, "source"_a, "num_outputs"_a, "raw"_a, "x"_a, "int8"_a, "group"_a, "strips_each"_a,
          "integer_scales"_a = false);
    m.def("quantize", quantize, "isa"_a, "x"_a, "group"_a);
    m.def("rms_norm", rms_norm, "isa"_a, "x"_a, "weight"_a, "eps"_a);
    m.def("silu_mul", silu_mul, "isa"_a, "gate"_a, "up"_a);
    m.def("attend", attend, "isa"_a, "queries"_a, "keys"_a, "values"_a, "block_ids"_a, "block_size"_a, "kv_dtype"_a,
          "window"_a.none(), "tokens_each"_a, "bf16_dot"_a);
    m.def(
        "sample",
        [](const std::string& isa, Array<float, 1> logits, nb::handle rules, std::uint32_t pos,
           Array<std::int32_t, 1> context_ids, std::optional<Array<std::uint32_t, 1>> allowed) {
            return sample_id(isa, logits, make_rules(rules), pos, context_ids, allowed);
        },
        "isa"_a, "logits"_a, "rules"_a, "pos"_a, "context_ids"_a, "allowed"_a.none());
    m.def("logprobs", logprobs, "isa"_a, "logits"_a, "token_id"_a, "num_top"_a);
    m.def(
        "digest",
        [](const std::string& isa, Array<float, 1> logits) {
            return choose_kernels(isa).digest(logits.data(), static_cast<int>(logits.size()));
        },
        "isa"_a, "logits"_a);
}

}  // namespace freehold
