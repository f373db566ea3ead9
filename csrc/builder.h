// Builds a model from a file's tensors: shapes first, then tensors one by one, each packed as it comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "model.h"

namespace freehold {

class Builder {
  public:
    // `arena_bytes` must hold all packed matrices (see packed_bytes).
    Builder(std::unique_ptr<Model> model, std::size_t arena_bytes, int num_threads);

    Model& model() { return *model_; }
    void set_matrix(const std::string& slot, int layer, SourceType source, int num_outputs, int num_inputs,
                    const std::uint8_t* raw, std::size_t raw_bytes);
    void set_vector(const std::string& slot, int layer, const float* values, std::size_t count);
    // Names of the layouts in use, in the order of layouts.h.
    std::vector<std::string> layouts() const;
    // The finished model; the builder is empty afterwards. Throws std::invalid_argument if something is missing.
    std::unique_ptr<Device> open(const KernelTable& kernels, const DeviceOptions& options);

  private:
    std::unique_ptr<Model> model_;
    std::size_t used_ = 0;
    bool layout_used_[kNumLayouts] = {};
    Team team_;
};

SourceType source_named(const std::string& name);
std::size_t packed_bytes(SourceType source, int num_outputs, int num_inputs);

}  // namespace freehold
