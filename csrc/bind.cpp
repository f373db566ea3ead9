// The Python module. Thin: arrays in, arrays out, the GIL released around everything that takes time.
#include "bind.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <climits>
#include <cstring>
#include <optional>

#include "device.h"
#include "dispatch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freehold {
namespace {

// Columns of a step's integer table; freehold.backends.cpu.steps writes them.
enum Column {
    kStartPos,
    kNumTokens,
    kNumBlocks,
    kNumSampled,
    kFlags,
    kFedStep,
    kFedRow,
    kTopK,
    kSeed,
    kChoice,
    kNumPrompt,
    kMinTokens,
    kNumTop,
    kNumContext,
    kNumScored,
    kNumScoredTop,
    kNumBiases,
    kNumStops,
    kNumColumns
};
enum Rule { kTemperature, kTopP, kMinP, kPresence, kFrequency, kRepetition, kNumRules };
enum Flag { kWantDigests = 1, kWantLogits = 2, kDeferred = 4, kFed = 8, kWantLogprobs = 16 };

StepRow read_row(const std::int64_t* column, const double* rules) {
    StepRow row;
    row.start_pos = static_cast<int>(column[kStartPos]);
    row.num_tokens = static_cast<int>(column[kNumTokens]);
    row.num_blocks = static_cast<int>(column[kNumBlocks]);
    row.num_context = static_cast<int>(column[kNumContext]);
    row.num_scored = static_cast<int>(column[kNumScored]);
    row.num_scored_top = static_cast<int>(column[kNumScoredTop]);
    row.num_sampled = static_cast<int>(column[kNumSampled]);
    row.want_digests = (column[kFlags] & kWantDigests) != 0;
    row.want_logits = (column[kFlags] & kWantLogits) != 0;
    row.deferred = (column[kFlags] & kDeferred) != 0;
    if ((column[kFlags] & kWantLogprobs) != 0) row.num_logprobs = static_cast<int>(column[kNumTop]);
    if ((column[kFlags] & kFed) != 0) row.fed_by = FedBy{column[kFedStep], static_cast<int>(column[kFedRow])};
    row.rules.temperature = rules[kTemperature];
    row.rules.top_p = rules[kTopP];
    row.rules.min_p = rules[kMinP];
    row.rules.top_k = column[kTopK];
    row.rules.seed = static_cast<std::uint64_t>(column[kSeed]);
    row.rules.choice = static_cast<std::uint32_t>(column[kChoice]);
    row.rules.presence_penalty = rules[kPresence];
    row.rules.frequency_penalty = rules[kFrequency];
    row.rules.repetition_penalty = rules[kRepetition];
    row.rules.num_prompt = static_cast<int>(column[kNumPrompt]);
    row.rules.min_end_pos = column[kNumPrompt] + column[kMinTokens];
    return row;
}

// The next items of an array that rows share, one row after the other.
template <class T>
class Rest {
  public:
    Rest(Array<T, 1> array) : next_(array.data()), end_(array.data() + array.size()) {}
    void take(std::int64_t count, std::vector<T>& out) {
        if (count < 0 || count > end_ - next_) throw std::invalid_argument("a step's rows don't fit its arrays");
        out.insert(out.end(), next_, next_ + count);
        next_ += count;
    }
    bool empty() const { return next_ == end_; }

  private:
    const T* next_;
    const T* end_;
};

// `more_ids` and `biases` hold, row after row: context, scored, biased and stop ids; a bias for each biased id.
void submit(Device& device, std::int64_t step_id, Array<std::int64_t, 2> columns, Array<double, 2> rules,
            Array<std::int32_t, 1> token_ids, Array<std::int32_t, 1> block_ids, Array<std::int32_t, 1> more_ids,
            Array<double, 1> biases) {
    const std::size_t num_rows = columns.shape(0);
    if (columns.shape(1) != kNumColumns || rules.shape(0) != num_rows || rules.shape(1) != kNumRules) {
        throw std::invalid_argument("a step's arrays don't fit together");
    }
    Step step;
    step.id = step_id;
    Rest<std::int32_t> tokens(token_ids);
    Rest<std::int32_t> blocks(block_ids);
    Rest<std::int32_t> more(more_ids);
    Rest<double> more_biases(biases);
    for (std::size_t i = 0; i < num_rows; ++i) {
        const std::int64_t* column = columns.data() + i * kNumColumns;
        StepRow row = read_row(column, rules.data() + i * kNumRules);
        row.first_token = static_cast<int>(step.token_ids.size());
        row.first_block = static_cast<int>(step.block_ids.size());
        row.first_context = static_cast<int>(step.context_ids.size());
        row.first_scored = static_cast<int>(step.scored_ids.size());
        tokens.take(row.num_tokens, step.token_ids);
        blocks.take(row.num_blocks, step.block_ids);
        more.take(row.num_context, step.context_ids);
        more.take(row.num_scored, step.scored_ids);
        more.take(column[kNumBiases], row.rules.bias_ids);
        more.take(column[kNumStops], row.rules.stop_ids);
        more_biases.take(column[kNumBiases], row.rules.biases);
        step.rows.push_back(std::move(row));
    }
    if (!tokens.empty() || !blocks.empty() || !more.empty() || !more_biases.empty()) {
        throw std::invalid_argument("a step's rows don't cover its arrays");
    }
    device.submit(std::move(step));
}

// Each row has as many of the masks, one after the other, as `counts` says.
void sample_rows(Device& device, std::int64_t step_id, const std::vector<int>& rows, const std::vector<int>& counts,
                 Array<std::uint32_t, 2> masks) {
    if (counts.size() != rows.size()) throw std::invalid_argument("one count a row");
    Masks sets;
    const std::size_t words = masks.shape(1);
    const std::uint32_t* next = masks.data();
    const std::uint32_t* end = next + masks.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t size = static_cast<std::size_t>(counts[i]) * words;
        if (size > static_cast<std::size_t>(end - next)) throw std::invalid_argument("too few masks");
        sets[rows[i]].assign(next, next + size);
        next += size;
    }
    device.sample(step_id, std::move(sets));
}

nb::object logits_array(std::vector<float>&& logits, int vocab_size) {
    if (logits.empty()) return nb::none();
    auto* owned = new std::vector<float>(std::move(logits));
    const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
    const std::size_t columns = static_cast<std::size_t>(vocab_size);
    return nb::cast(nb::ndarray<nb::numpy, float>(owned->data(), {owned->size() / columns, columns}, owner));
}

// [(log probability, rank, ((id, log probability), …)), …]
nb::list logprobs_list(const std::vector<TokenLogprobs>& all) {
    nb::list list;
    for (const TokenLogprobs& one : all) {
        nb::list top;
        for (const auto& [id, logprob] : one.top) top.append(nb::make_tuple(id, logprob));
        list.append(nb::make_tuple(one.logprob, one.rank, nb::tuple(top)));
    }
    return list;
}

// ([(token ids, digests, logits or None, finite, log probabilities, those of scored ids)], seconds)
nb::tuple collect(Device& device, std::int64_t step_id) {
    StepOutput output;
    {
        const nb::gil_scoped_release unlocked;
        output = device.collect(step_id);
    }
    nb::list rows;
    for (RowOutput& row : output.rows) {
        rows.append(nb::make_tuple(nb::cast(row.token_ids), nb::cast(row.digests),
                                   logits_array(std::move(row.logits), device.vocab_size()), row.finite,
                                   logprobs_list(row.logprobs), logprobs_list(row.scored)));
    }
    return nb::make_tuple(rows, output.run_s);
}

void copy_blocks(Device& device, std::vector<int> pairs) {
    device.enqueue([&device, pairs = std::move(pairs)] {
        for (std::size_t i = 0; i + 1 < pairs.size(); i += 2) device.copy_block(pairs[i], pairs[i + 1]);
    });
}

nb::bytes read_block(Device& device, int block_id) {
    std::vector<char> data(device.block_bytes());
    {
        const nb::gil_scoped_release unlocked;
        device.call([&] { std::memcpy(data.data(), device.block(block_id), data.size()); });
    }
    return nb::bytes(data.data(), data.size());
}

void write_block(Device& device, int block_id, nb::bytes data) {
    if (data.size() != device.block_bytes()) {
        throw std::invalid_argument("a block takes " + std::to_string(device.block_bytes()) + " bytes, " +
                                    std::to_string(data.size()) + " were given");
    }
    const nb::gil_scoped_release unlocked;
    device.call([&] { std::memcpy(device.block(block_id), data.c_str(), data.size()); });
}

void bind_device(nb::module_& m) {
    nb::class_<Device>(m, "Device")
        .def("submit", submit, "step_id"_a, "columns"_a, "rules"_a, "token_ids"_a, "block_ids"_a, "more_ids"_a,
             "biases"_a)
        .def("sample", sample_rows, "step_id"_a, "rows"_a, "counts"_a, "masks"_a)
        .def("wait", &Device::wait, "step_id"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("collect", collect, "step_id"_a)
        .def("copy_blocks", copy_blocks, "pairs"_a)
        .def("read_block", read_block, "block_id"_a)
        .def("write_block", write_block, "block_id"_a, "data"_a)
        .def("start_profile", &Device::start_profile, "max_steps"_a, "max_spans"_a,
             nb::call_guard<nb::gil_scoped_release>())
        .def("stop_profile", stop_profile)
        .def("close", &Device::close, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("scratch_bytes", &Device::scratch_bytes)
        .def_prop_ro("isa", &Device::isa);
}

}  // namespace
}  // namespace freehold

NB_MODULE(_native, m) {
    using namespace freehold;
    // A process that exits with an engine running leaves objects behind; that is no fault worth a message.
    nb::set_leak_warnings(false);
    m.doc() = "Freehold's CPU backend. Use it through freehold.backends.cpu.";
    nb::exception<StepRefused>(m, "StepRefused");
    m.def("available_isas", available_isas);
    m.def("has_integer_scales", [](const std::string& isa) { return choose_kernels(isa).integer_scales; }, "isa"_a);
    bind_builder(m);
    bind_device(m);
    nb::module_ kernels = m.def_submodule("kernels", "Single kernels, for their parity tests.");
    bind_kernels(kernels);
    nb::module_ limits = m.def_submodule("limits", "What this machine can do at most.");
    bind_limits(limits);
}
