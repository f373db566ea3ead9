// Builds a model from a file's tensors: shapes first, then where each tensor lies, then all are packed at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device.h"
#include "model.h"
#include "packed_file.h"
#include "row_stream.h"

namespace freehold {

class Builder {
  public:
    // `arena_bytes` must hold all packed matrices (see slot_shape). `integer_scales`: of the layouts that can have
    // them; such a model opens with int8 activations and kernels that know them alone.
    Builder(std::unique_ptr<Model> model, std::size_t arena_bytes, int num_threads, bool integer_scales = false);

    Model& model() { return *model_; }
    // Takes note of a matrix; `rows` and what they lie in must stay until `pack`. `order` is empty, or has the stored
    // row of each output. Matrices lie in the arena in the order of these calls.
    void add_matrix(const std::string& slot, int layer, SourceType source, int num_outputs, int num_inputs, Rows rows,
                    std::size_t raw_bytes, std::vector<std::int32_t> order = {});
    // Packs all matrices that were added.
    std::optional<ReadFailure> pack();
    // Fills them instead from a file that holds the arena as `pack` had filled it. Returns what is wrong with the file;
    // `pack` is as good as ever then.
    std::optional<std::string> read(int descriptor, off_t start, const std::vector<std::uint64_t>& checksums);
    // The packed matrices.
    std::shared_ptr<const Region> arena() const { return arena_; }
    // Seconds that packing took, reading not counted.
    double packing_s() const { return packing_s_; }
    void set_vector(const std::string& slot, int layer, const float* values, std::size_t count);
    // Names of the layouts in use, in the order of layouts.h.
    std::vector<std::string> layouts() const;
    // The finished model; the builder is empty afterwards. Throws std::invalid_argument if something is missing.
    std::unique_ptr<Device> open(const KernelTable& kernels, const DeviceOptions& options);

  private:
    void hand_out();

    std::unique_ptr<Model> model_;
    std::shared_ptr<const Region> arena_;
    double packing_s_ = 0.0;
    std::size_t used_ = 0;
    bool integer_scales_;
    bool layout_used_[kNumLayouts] = {};
    std::vector<IncomingMatrix> incoming_;
    std::vector<Matrix*> places_;  // in the model, of the incoming ones
    Team team_;
};

SourceType source_named(const std::string& name);
// The empty matrix that a slot's weights pack into. Embeddings that are looked up and nothing else keep their scales.
Matrix slot_shape(const std::string& slot, SourceType source, int num_outputs, int num_inputs, bool integer_scales,
                  bool tied_embeddings);

}  // namespace freehold
