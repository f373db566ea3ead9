#include "matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "integer_scales.h"
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

Matrix packed_shape(SourceType source, int num_outputs, int num_inputs, bool integer_scales) {
    const LayoutId layout = source_of(source).layout;
    return Matrix{nullptr, integer_scales ? with_integer_scales(layout) : layout, num_outputs, num_inputs};
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
        std::uint8_t* to = strip + static_cast<std::size_t>(k) * layout.cell_bytes() + column * layout.bits() / 8;
        if (layout.bits() == 16) {
            std::memcpy(to, from, 2);
        } else {
            const float value = source_float(source, from);
            std::memcpy(to, &value, sizeof value);
        }
    }
}

// Where a group of one output lies in its strip.
template <class Byte>
struct GroupPlace {
    GroupPlace(const Layout& layout, Byte* strip, int group, int column) {
        const int input = group * layout.group;
        const int in_block = input % layout.block_inputs();
        Byte* block = strip + layout.units_bytes() +
                      static_cast<std::size_t>(input / layout.block_inputs()) * layout.block_bytes();
        Byte* cell = block + layout.head_bytes() + in_block / layout.cell_inputs() * layout.cell_bytes();
        values = cell + layout.line_at(column / kPanel, 0) + column % kPanel * kQuad;
        halves = (layout.two_level() ? block : cell + layout.halves_at()) + column * 2;
        unit = strip + column * 2;
        integers = cell + layout.halves_at() + (column * 2 + group % 2) * 2;
        const int integer = in_block / layout.group * kStrip + column;
        scale = block + layout.integers_at() + integer;
        minimum = block + layout.integer_minima_at() + integer;
        quad = in_block % layout.cell_inputs() / kQuad;
    }
    Byte* minimum_half() const { return halves + kStrip * 2; }
    Byte* minimum_integer() const { return integers + kStrip * 4; }

    Byte* values;    // in line 0 of the cell
    Byte* halves;    // scale or factor
    Byte* scale;     // integer
    Byte* minimum;   // integer
    Byte* unit;      // of integer scales
    Byte* integers;  // 16-bit scale
    int quad;        // first quad's number in the cell
};

constexpr std::uint32_t low_bits_of_bytes(int bits) { return 0x01010101u * ((1u << bits) - 1); }

// A plane of `bits` a value in so many lines, `line_step` bytes from one to the next.
struct Plane {
    int bits, lines, line_step;
};

// Four values of a quad.
void add_to_plane(std::uint8_t* plane, Plane shape, int quad, std::uint32_t four) {
    std::uint8_t* at = plane + quad % shape.lines * shape.line_step;
    std::uint32_t word;
    std::memcpy(&word, at, sizeof word);
    word |= (four & low_bits_of_bytes(shape.bits)) << (quad / shape.lines * shape.bits);
    std::memcpy(at, &word, sizeof word);
}

std::uint32_t plane_quad(const std::uint8_t* plane, Plane shape, int quad) {
    std::uint32_t word;
    std::memcpy(&word, plane + quad % shape.lines * shape.line_step, sizeof word);
    return (word >> (quad / shape.lines * shape.bits)) & low_bits_of_bytes(shape.bits);
}

Plane plane_of(const Layout& layout, int bits) { return {bits, layout.plane_lines(bits), layout.line_step()}; }
Plane low_plane(const Layout& layout) { return plane_of(layout, layout.low_bits); }
Plane high_plane(const Layout& layout) { return plane_of(layout, layout.high_bits); }

void store_values(const Layout& layout, const Group& group, const GroupPlace<std::uint8_t>& to) {
    for (int q = 0; q < layout.group / kQuad; ++q) {
        std::uint32_t four;
        std::memcpy(&four, group.stored + q * kQuad, sizeof four);
        add_to_plane(to.values, low_plane(layout), to.quad + q, four);
        if (layout.high_bits != 0) {
            add_to_plane(to.values + low_plane(layout).lines * kLineBytes, high_plane(layout), to.quad + q,
                         four >> layout.low_bits);
        }
    }
}

void store_group(const Layout& layout, const Group& group, const GroupPlace<std::uint8_t>& to) {
    store_values(layout, group, to);
    std::memcpy(to.halves, &group.scale_half, 2);
    if (layout.minimum) std::memcpy(to.minimum_half(), &group.minimum_half, 2);
    if (layout.scales == Scales::nibbles) *to.scale = static_cast<std::uint8_t>(group.scale | group.minimum << 4);
    if (layout.scales == Scales::bytes) {
        *to.scale = static_cast<std::uint8_t>(group.scale);
        if (layout.minimum) *to.minimum = static_cast<std::uint8_t>(group.minimum);
    }
}

// Minima of nibbles that count from -8.
float centred_minimum(const Layout& layout, const Group& group) {
    if (!layout.minimum) return 0.0f;
    return half_to_float(group.scale_half) * static_cast<float>(kCentre) + half_to_float(group.minimum_half);
}

void pack_column_with_integer_scales(const Layout& layout, GroupDecoder decode, const std::uint8_t* row, int num_inputs,
                                     int column, std::uint8_t* strip) {
    Group group{};
    IntegerUnit common;
    for (int g = 0; g < num_inputs / layout.group; ++g) {
        decode(row, g, group);
        common.see(half_to_float(group.scale_half), centred_minimum(layout, group));
    }
    const float unit = common.value();
    const std::uint16_t stored_unit = float_to_bf16(unit);
    std::memcpy(strip + column * 2, &stored_unit, sizeof stored_unit);
    for (int g = 0; g < num_inputs / layout.group; ++g) {
        decode(row, g, group);
        const GroupPlace<std::uint8_t> to(layout, strip, g, column);
        store_values(layout, group, to);
        const std::int16_t scale = integer_of(half_to_float(group.scale_half), per_unit(unit));
        const std::int16_t minimum = integer_of(centred_minimum(layout, group), per_unit(unit) / kCentre);
        std::memcpy(to.integers, &scale, sizeof scale);
        if (layout.minimum) std::memcpy(to.minimum_integer(), &minimum, sizeof minimum);
    }
}

void pack_quantized_column(const Layout& layout, GroupDecoder decode, const std::uint8_t* row, int num_inputs,
                           int column, std::uint8_t* strip) {
    if (layout.integer_scales()) {
        return pack_column_with_integer_scales(layout, decode, row, num_inputs, column, strip);
    }
    Group group{};
    for (int g = 0; g < num_inputs / layout.group; ++g) {
        decode(row, g, group);
        store_group(layout, group, GroupPlace<std::uint8_t>(layout, strip, g, column));
    }
}

}  // namespace

void pack_strip_by_groups(const Matrix& matrix, SourceType source, const std::uint8_t* const* rows, int num_rows,
                          std::uint8_t* strip) {
    const Layout& layout = layout_of(matrix.layout);
    const GroupDecoder decode = group_decoder(source);
    std::memset(strip, 0, matrix.strip_bytes());
    for (int column = 0; column < num_rows; ++column) {
        if (layout.quantized()) {
            pack_quantized_column(layout, decode, rows[column], matrix.num_inputs, column, strip);
        } else {
            pack_plain_column(layout, source, rows[column], matrix.num_inputs, column, strip);
        }
    }
}

void pack(Matrix& matrix, SourceType source, const std::uint8_t* raw, std::uint8_t* destination, Team& team) {
    const std::size_t row_bytes = source_of(source).row_bytes(matrix.num_inputs);
    team.run([&](int) {
        team.for_each(matrix.num_strips(), [&](int strip) {
            const int first = strip * kStrip;
            const int num_rows = std::min(kStrip, matrix.num_outputs - first);
            const std::uint8_t* rows[kStrip];
            for (int i = 0; i < num_rows; ++i) rows[i] = raw + row_bytes * static_cast<std::size_t>(first + i);
            pack_strip(matrix, source, rows, num_rows,
                       destination + matrix.strip_bytes() * static_cast<std::size_t>(strip));
        });
    });
    matrix.data = destination;
}

namespace {

float half_at(const std::uint8_t* p) {
    std::uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half_to_float(half);
}

float integer_at(const std::uint8_t* p) {
    std::int16_t integer;
    std::memcpy(&integer, p, sizeof integer);
    return static_cast<float>(integer);
}

float unit_at(const std::uint8_t* p) {
    std::uint16_t unit;
    std::memcpy(&unit, p, sizeof unit);
    return bf16_to_float(unit);
}

void scale_and_minimum(const Layout& layout, const GroupPlace<const std::uint8_t>& from, float& scale, float& minimum) {
    if (layout.integer_scales()) {
        const float unit = unit_at(from.unit);
        scale = unit * integer_at(from.integers);
        minimum = layout.minimum ? unit * static_cast<float>(kCentre) * integer_at(from.minimum_integer()) : 0.0f;
        return;
    }
    scale = half_at(from.halves);
    minimum = layout.minimum ? half_at(from.minimum_half()) : 0.0f;
    if (layout.scales == Scales::nibbles) {
        scale *= static_cast<float>(*from.scale & 15);
        minimum *= static_cast<float>(*from.scale >> 4);
    } else if (layout.scales == Scales::bytes) {
        scale *= static_cast<float>(static_cast<std::int8_t>(*from.scale));
        if (layout.minimum) minimum *= static_cast<float>(static_cast<std::int8_t>(*from.minimum));
    }
}

void unpack_group(const Layout& layout, const GroupPlace<const std::uint8_t>& from, float* weights) {
    float scale;
    float minimum;
    scale_and_minimum(layout, from, scale, minimum);
    for (int q = 0; q < layout.group / kQuad; ++q) {
        std::uint32_t four = plane_quad(from.values, low_plane(layout), from.quad + q);
        if (layout.high_bits != 0) {
            const std::uint8_t* high = from.values + low_plane(layout).lines * kLineBytes;
            four |= plane_quad(high, high_plane(layout), from.quad + q) << layout.low_bits;
        }
        std::uint8_t stored[kQuad];
        std::memcpy(stored, &four, sizeof stored);
        for (int j = 0; j < kQuad; ++j) {
            const int value = layout.table ? kValueTable[stored[j]] : stored[j];
            const float product = scale * static_cast<float>(value - layout.offset);
            weights[q * kQuad + j] = layout.minimum ? product + minimum : product;
        }
    }
}

}  // namespace

void unpack_row(const Matrix& matrix, int output, float* weights) {
    const Layout& layout = layout_of(matrix.layout);
    const int column = output % kStrip;
    const std::uint8_t* strip = matrix.data + matrix.strip_bytes() * static_cast<std::size_t>(output / kStrip);
    if (layout.quantized()) {
        for (int g = 0; g < matrix.num_inputs / layout.group; ++g) {
            unpack_group(layout, GroupPlace<const std::uint8_t>(layout, strip, g, column), weights + g * layout.group);
        }
        return;
    }
    const std::uint8_t* value = strip + column * layout.bits() / 8;
    for (int k = 0; k < matrix.num_inputs; ++k, value += layout.cell_bytes()) {
        if (layout.bits() == 16) {
            std::uint16_t half;
            std::memcpy(&half, value, sizeof half);
            weights[k] = bf16_to_float(half);
        } else {
            std::memcpy(weights + k, value, sizeof(float));
        }
    }
}

}  // namespace freehold
