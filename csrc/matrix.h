// A packed weight matrix and the arena it lies in.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layouts.h"
#include "sources.h"
#include "threads/team.h"

namespace freehold {

// Zeroed, page-aligned memory from the system, in huge pages where it offers them; untouched pages cost nothing.
class Region {
  public:
    Region() = default;
    explicit Region(std::size_t num_bytes, bool huge_pages);
    ~Region();
    Region(Region&& other) noexcept;
    Region& operator=(Region&& other) noexcept;
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

    std::uint8_t* data() const { return data_; }
    std::size_t size() const { return size_; }

  private:
    std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
};

struct Matrix {
    const std::uint8_t* data = nullptr;  // 64-byte aligned strips, see layouts.h
    LayoutId layout = LayoutId::f32;
    int num_outputs = 0;
    int num_inputs = 0;
    bool fine_activations = false;  // int8 inputs have a scale for each 16, not 32

    int num_strips() const { return (num_outputs + kStrip - 1) / kStrip; }
    int padded_outputs() const { return num_strips() * kStrip; }
    std::size_t strip_bytes() const { return layout_of(layout).strip_bytes(num_inputs); }
    std::size_t num_bytes() const { return strip_bytes() * static_cast<std::size_t>(num_strips()); }
};

// The empty matrix that `source` weights of that shape pack into; `integer_scales`: where there is such a layout.
Matrix packed_shape(SourceType source, int num_outputs, int num_inputs, bool integer_scales = false);

// Packs row-major `raw` bytes into `destination` (matrix.num_bytes() long) with all of the team's threads.
void pack(Matrix& matrix, SourceType source, const std::uint8_t* raw, std::uint8_t* destination, Team& team);

// Packs one strip, its padding included: rows[i] is output i's row as the file stores it. Outputs past num_rows become
// zero weights.
void pack_strip(const Matrix& matrix, SourceType source, const std::uint8_t* const* rows, int num_rows,
                std::uint8_t* strip);

// The same through the decoder of single groups, for every type: the slow twin.
void pack_strip_by_groups(const Matrix& matrix, SourceType source, const std::uint8_t* const* rows, int num_rows,
                          std::uint8_t* strip);

// Dequantizes one output's weights: num_inputs floats, equal to the source type's own dequantization but for the
// rounding of integer scales.
void unpack_row(const Matrix& matrix, int output, float* weights);

}  // namespace freehold
