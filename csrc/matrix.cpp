#include "matrix.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

#include "numeric.h"

namespace freehold {

Region::Region(std::size_t num_bytes, bool huge_pages) {
    if (num_bytes == 0) return;
    void* p = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::uint8_t*>(p);
    size_ = num_bytes;
#ifdef MADV_HUGEPAGE
    if (huge_pages) madvise(p, num_bytes, MADV_HUGEPAGE);
#else
    (void)huge_pages;
#endif
}

Region::~Region() {
    if (data_ != nullptr) munmap(data_, size_);
}

Region::Region(Region&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

Matrix packed_shape(SourceType source, int num_outputs, int num_inputs) {
    return Matrix{nullptr, source_of(source).layout, num_outputs, num_inputs};
}

namespace {

float source_float(SourceType source, const std::uint8_t* p) {
    std::uint16_t half;
    if (source == SourceType::F32) {
        float value;
        std::memcpy(&value, p, sizeof value);
        return value;
    }
    std::memcpy(&half, p, sizeof half);
    return source == SourceType::F16 ? half_to_float(half) : bf16_to_float(half);
}

void pack_plain_column(const Layout& layout, SourceType source, const std::uint8_t* row, int num_inputs, int column,
                       std::uint8_t* strip) {
    const int element_bytes = source_of(source).block_bytes;
    for (int k = 0; k < num_inputs; ++k) {
        const std::uint8_t* from = row + static_cast<std::size_t>(k) * element_bytes;
        std::uint8_t* to = strip + static_cast<std::size_t>(k) * layout.cell_bytes() + column * layout.bits / 8;
        if (layout.bits == 16) {
            std::memcpy(to, from, 2);
        } else {
            const float value = source_float(source, from);
            std::memcpy(to, &value, sizeof value);
        }
    }
}

void store_values(const Layout& layout, const Group& group, int column, std::uint8_t* cell) {
    std::uint8_t* panel = cell + column / kPanel * layout.panel_bytes() + column % kPanel * kQuad;
    const int num_lines = layout.num_lines();
    for (int line = 0; line < num_lines; ++line) {
        for (int j = 0; j < kQuad; ++j) {
            std::uint8_t& at = panel[line * kLineBytes + j];
            const int k = line * kQuad + j;
            at = layout.bits == 8
                     ? group.stored[k]
                     : static_cast<std::uint8_t>(group.stored[k] | group.stored[k + num_lines * kQuad] << 4);
        }
    }
}

void store_scales(const Layout& layout, const Group& group, int column, std::uint8_t* cell) {
    const int size = layout.scale_bytes();
    const bool wide = layout.scale == ScaleType::f32;
    const void* scale = wide ? static_cast<const void*>(&group.scale) : &group.scale_f16;
    const void* minimum = wide ? static_cast<const void*>(&group.minimum) : &group.minimum_f16;
    std::memcpy(cell + layout.scales_at() + column * size, scale, static_cast<std::size_t>(size));
    if (layout.minimum) {
        std::memcpy(cell + layout.minima_at() + column * size, minimum, static_cast<std::size_t>(size));
    }
}

void pack_quantized_column(const Layout& layout, GroupDecoder decode, const std::uint8_t* row, int num_inputs,
                           int column, std::uint8_t* strip) {
    Group group{};
    for (int g = 0; g < num_inputs / layout.group; ++g) {
        decode(row, g, group);
        std::uint8_t* cell = strip + static_cast<std::size_t>(g) * layout.cell_bytes();
        store_values(layout, group, column, cell);
        store_scales(layout, group, column, cell);
    }
}

}  // namespace

void pack(Matrix& matrix, SourceType source, const std::uint8_t* raw, std::uint8_t* destination, Team& team) {
    const Layout& layout = layout_of(matrix.layout);
    const Source& from = source_of(source);
    const GroupDecoder decode = group_decoder(source);
    const std::size_t row_bytes =
        static_cast<std::size_t>(matrix.num_inputs / from.block_elements) * static_cast<std::size_t>(from.block_bytes);
    const std::size_t strip_bytes = matrix.strip_bytes();
    std::memset(destination, 0, matrix.num_bytes());
    team.run([&](int) {
        team.for_each(matrix.num_strips(), [&](int strip) {
            std::uint8_t* to = destination + strip_bytes * static_cast<std::size_t>(strip);
            for (int column = 0; column < kStrip && strip * kStrip + column < matrix.num_outputs; ++column) {
                const std::uint8_t* row = raw + row_bytes * static_cast<std::size_t>(strip * kStrip + column);
                if (layout.quantized()) {
                    pack_quantized_column(layout, decode, row, matrix.num_inputs, column, to);
                } else {
                    pack_plain_column(layout, source, row, matrix.num_inputs, column, to);
                }
            }
        });
    });
    matrix.data = destination;
}

namespace {

float scale_at(const Layout& layout, const std::uint8_t* cell, int at, int column) {
    const std::uint8_t* p = cell + at + column * layout.scale_bytes();
    if (layout.scale == ScaleType::f32) {
        float value;
        std::memcpy(&value, p, sizeof value);
        return value;
    }
    std::uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half_to_float(half);
}

void unpack_cell(const Layout& layout, const std::uint8_t* cell, int column, float* weights) {
    const std::uint8_t* panel = cell + column / kPanel * layout.panel_bytes() + column % kPanel * kQuad;
    const float scale = scale_at(layout, cell, layout.scales_at(), column);
    const float minimum = layout.minimum ? scale_at(layout, cell, layout.minima_at(), column) : 0.0f;
    const int low_inputs = layout.num_lines() * kQuad;
    for (int k = 0; k < layout.group; ++k) {
        const int line = k % low_inputs / kQuad;
        const int byte = panel[line * kLineBytes + k % kQuad];
        const int stored = layout.bits == 8 ? byte : k < low_inputs ? byte & 15 : byte >> 4;
        const float product = scale * static_cast<float>(stored - layout.offset);
        weights[k] = layout.minimum ? product + minimum : product;
    }
}

}  // namespace

void unpack_row(const Matrix& matrix, int output, float* weights) {
    const Layout& layout = layout_of(matrix.layout);
    const int column = output % kStrip;
    const std::uint8_t* cell = matrix.data + matrix.strip_bytes() * static_cast<std::size_t>(output / kStrip);
    for (int k = 0; k < matrix.num_inputs; k += layout.group, cell += layout.cell_bytes()) {
        if (layout.quantized()) {
            unpack_cell(layout, cell, column, weights + k);
        } else if (layout.bits == 16) {
            std::uint16_t value;
            std::memcpy(&value, cell + column * 2, sizeof value);
            weights[k] = bf16_to_float(value);
        } else {
            std::memcpy(weights + k, cell + column * 4, sizeof(float));
        }
    }
}

}  // namespace freehold
