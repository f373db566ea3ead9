#include "builder.h"

#include <stdexcept>
#include <utility>

namespace freehold {

SourceType source_named(const std::string& name) {
    for (int i = 0; i < kNumSources; ++i) {
        if (name == kSources[i].name) return static_cast<SourceType>(i);
    }
    throw std::invalid_argument("weight type '" + name + "' is not known");
}

std::size_t packed_bytes(SourceType source, int num_outputs, int num_inputs) {
    return packed_shape(source, num_outputs, num_inputs).num_bytes();
}

Builder::Builder(std::unique_ptr<Model> model, std::size_t arena_bytes, int num_threads)
    : model_(std::move(model)), team_(num_threads) {
    model_->arena = Region(arena_bytes, true);
}

void Builder::set_matrix(const std::string& slot, int layer, SourceType source, int num_outputs, int num_inputs,
                         const std::uint8_t* raw, std::size_t raw_bytes) {
    const Source& from = source_of(source);
    const auto blocks = static_cast<std::size_t>(num_inputs / from.block_elements);
    const std::size_t expected =
        static_cast<std::size_t>(num_outputs) * blocks * static_cast<std::size_t>(from.block_bytes);
    if (num_inputs % from.block_elements != 0 || raw_bytes != expected) {
        throw std::invalid_argument("matrix '" + slot + "' has " + std::to_string(raw_bytes) + " bytes, not " +
                                    std::to_string(expected));
    }
    Matrix& matrix = model_->matrix(slot, layer);
    matrix = packed_shape(source, num_outputs, num_inputs);
    if (used_ + matrix.num_bytes() > model_->arena.size()) {
        throw std::invalid_argument("matrix '" + slot + "' does not fit in the arena");
    }
    pack(matrix, source, raw, model_->arena.data() + used_, team_);
    used_ += matrix.num_bytes();
    // Of all inputs, the attention's lose most by coarse scales (docs/performance.md).
    const bool attends = slot == "q" || slot == "k" || slot == "v";
    matrix.fine_activations = attends || layout_of(matrix.layout).group == kFineGroup;
    layout_used_[static_cast<int>(matrix.layout)] = true;
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
    return std::make_unique<Device>(std::move(model_), kernels, options);
}

}  // namespace freehold
