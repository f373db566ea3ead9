#include "builder.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace freehold {

SourceType source_named(const std::string& name) {
    for (int i = 0; i < kNumSources; ++i) {
        if (name == kSources[i].name) return static_cast<SourceType>(i);
    }
    throw std::invalid_argument("weight type '" + name + "' is not known");
}

namespace {

bool is_order_of(const std::vector<std::int32_t>& order, int num_rows) {
    if (order.empty()) return true;
    const auto is_row = [num_rows](std::int32_t row) { return row >= 0 && row < num_rows; };
    return order.size() == static_cast<std::size_t>(num_rows) && std::all_of(order.begin(), order.end(), is_row);
}

}  // namespace

Matrix slot_shape(const std::string& slot, SourceType source, int num_outputs, int num_inputs, bool integer_scales,
                  bool tied_embeddings) {
    const bool looked_up_only = slot == "embed" && !tied_embeddings;
    return packed_shape(source, num_outputs, num_inputs, integer_scales && !looked_up_only);
}

Builder::Builder(std::unique_ptr<Model> model, std::size_t arena_bytes, int num_threads, bool integer_scales)
    : model_(std::move(model)),
      arena_(std::make_shared<const Region>(arena_bytes, true)),
      integer_scales_(integer_scales),
      team_(num_threads) {
    model_->arena = arena_;
}

void Builder::add_matrix(const std::string& slot, int layer, SourceType source, int num_outputs, int num_inputs,
                         Rows rows, std::size_t raw_bytes, std::vector<std::int32_t> order) {
    const std::size_t expected = static_cast<std::size_t>(num_outputs) * source_of(source).row_bytes(num_inputs);
    if (num_inputs % source_of(source).block_elements != 0 || raw_bytes != expected) {
        throw std::invalid_argument("matrix '" + slot + "' has " + std::to_string(raw_bytes) + " bytes, not " +
                                    std::to_string(expected));
    }
    if (!is_order_of(order, num_outputs)) throw std::invalid_argument("the row order of '" + slot + "' is malformed");
    Matrix shape = slot_shape(slot, source, num_outputs, num_inputs, integer_scales_, model_->tied_embeddings);
    if (used_ + shape.num_bytes() > arena_->size()) {
        throw std::invalid_argument("matrix '" + slot + "' does not fit in the arena");
    }
    // Keys and values lose most by coarse scales of their inputs (docs/performance.md).
    shape.fine_activations = slot == "k" || slot == "v" || layout_of(shape.layout).group == kFineGroup;
    layout_used_[static_cast<int>(shape.layout)] = true;
    places_.push_back(&model_->matrix(slot, layer));
    incoming_.push_back({shape, source, rows, std::move(order), arena_->data() + used_});
    used_ += shape.num_bytes();
}

std::optional<ReadFailure> Builder::pack() {
    const PackResult result = pack_all(incoming_, team_);
    packing_s_ = result.packing_s;
    if (!result.failure) hand_out();
    return result.failure;
}

std::optional<std::string> Builder::read(int descriptor, off_t start, const std::vector<std::uint64_t>& checksums) {
    std::optional<std::string> wrong = read_packed(descriptor, start, checksums, arena_->data(), used_, team_);
    if (!wrong) hand_out();
    return wrong;
}

void Builder::hand_out() {
    for (std::size_t i = 0; i < places_.size(); ++i) {
        *places_[i] = incoming_[i].shape;
        places_[i]->data = incoming_[i].destination;
    }
}

void Builder::set_vector(const std::string& slot, int layer, const float* values, std::size_t count) {
    std::vector<float>& vector = model_->vector(slot, layer);
    vector.assign(values, values + count);
    // Norms of the hidden size are multiplied with padded rows.
    const bool padded = slot == "attn_norm" || slot == "mlp_norm" || slot == "final_norm";
    if (padded) vector.resize(static_cast<std::size_t>(round_up(static_cast<int>(count), kStrip)), 0.0f);
}

std::vector<std::string> Builder::layouts() const {
    std::vector<std::string> names;
    for (int i = 0; i < kNumLayouts; ++i) {
        if (layout_used_[i]) names.emplace_back(kLayouts[i].name);
    }
    return names;
}

std::unique_ptr<Device> Builder::open(const KernelTable& kernels, const DeviceOptions& options) {
    if (!model_) throw std::invalid_argument("the builder has already opened its model");
    model_->check();
    if (model_->has_integer_scales() && !(options.int8 && kernels.integer_scales)) {
        throw std::invalid_argument(
            std::string("weights with integer scales need int8 activations, and kernels that '") + kernels.isa +
            "' lacks");
    }
    return std::make_unique<Device>(std::move(model_), kernels, options);
}

}  // namespace freehold
