// Packs strips at the memory's speed where a layout holds a type's bytes in another order and nothing else.
//
// Types whose blocks hold 4 consecutive inputs in 32 bits, as lines do, are transposed word by word, others of 16 and
// 32 bits in small squares; groups whose scales become integers are paired on the way. Everything else goes through
// decoders of groups.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "integer_scales.h"
#include "matrix.h"
#include "numeric.h"

namespace freehold {
namespace {

// The outputs of a strip that exist.
struct StripRows {
    const std::uint8_t* const* rows;
    int num_rows;
};

// How a block of 32 inputs lies in a file: float16 numbers, then words of values.
struct WordBlock {
    int bytes;
    int num_halves;       // scale; scale and minimum
    int num_words;        // of values, in the order of a panel's lines
    std::uint32_t flips;  // bits that turn the file's values into the layout's
};

constexpr WordBlock kQ4_0{18, 1, 4, 0};
constexpr WordBlock kQ4_1{20, 2, 4, 0};
constexpr WordBlock kQ8_0{34, 1, 8, 0x80808080u};

constexpr int cell_bytes(const WordBlock& block) {
    return kStrip *
           static_cast<int>(block.num_words * sizeof(std::uint32_t) + block.num_halves * sizeof(std::uint16_t));
}

template <const WordBlock& kBlock>
void pack_words(const StripRows& from, int num_inputs, std::uint8_t* strip) {
    constexpr int kHalvesAt = kStrip * kBlock.num_words * static_cast<int>(sizeof(std::uint32_t));
    for (int g = 0; g < num_inputs / 32; ++g) {
        std::uint8_t* cell = strip + static_cast<std::size_t>(g) * cell_bytes(kBlock);
        for (int column = 0; column < from.num_rows; ++column) {
            const std::uint8_t* block = from.rows[column] + static_cast<std::size_t>(g) * kBlock.bytes;
            for (int half = 0; half < kBlock.num_halves; ++half) {
                std::memcpy(cell + kHalvesAt + (half * kStrip + column) * 2, block + half * 2, 2);
            }
            std::uint8_t* to = cell + column / kPanel * kBlock.num_words * kLineBytes + column % kPanel * kQuad;
            for (int word = 0; word < kBlock.num_words; ++word) {
                std::uint32_t values;
                std::memcpy(&values, block + kBlock.num_halves * 2 + word * 4, sizeof values);
                values ^= kBlock.flips;
                std::memcpy(to + word * kLineBytes, &values, sizeof values);
            }
        }
    }
}

float half_at(const std::uint8_t* p) {
    std::uint16_t half;
    std::memcpy(&half, p, sizeof half);
    return half_to_float(half);
}

// A block's scale, and the minimum of nibbles that count from -8.
struct CentredScale {
    float scale, minimum;
};
template <const WordBlock& kBlock>
CentredScale centred(const std::uint8_t* block) {
    const float scale = half_at(block);
    if constexpr (kBlock.num_halves == 1) return {scale, 0.0f};
    return {scale, scale * static_cast<float>(kCentre) + half_at(block + 2)};
}

template <const WordBlock& kBlock>
float unit_of(const std::uint8_t* row, int num_groups) {
    IntegerUnit unit;
    for (int g = 0; g < num_groups; ++g) {
        const CentredScale found = centred<kBlock>(row + static_cast<std::size_t>(g) * kBlock.bytes);
        unit.see(found.scale, found.minimum);
    }
    return unit.value();
}

std::uint32_t word_at(const std::uint8_t* p) {
    std::uint32_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
}

// Nibbles of two blocks: a line's low ones are of the first, its high ones of the second.
void pair_nibbles(const std::uint8_t* first, const std::uint8_t* second, int num_words, std::uint8_t* to) {
    constexpr std::uint32_t kLow = 0x0f0f0f0fu;
    for (int word = 0; word < num_words; ++word) {
        const std::uint32_t a = word_at(first + word * 4), b = word_at(second + word * 4);
        const std::uint32_t low = (a & kLow) | (b & kLow) << 4, high = (a >> 4 & kLow) | (b & ~kLow);
        std::memcpy(to + word * kLineBytes, &low, sizeof low);
        std::memcpy(to + (num_words + word) * kLineBytes, &high, sizeof high);
    }
}

// Two blocks of an output to a cell of 64 inputs. The second one may be missing: zeros.
template <const WordBlock& kBlock>
void pack_pair(const Layout& layout, const std::uint8_t* first, const std::uint8_t* second, float per_unit, int column,
               std::uint8_t* cell) {
    std::uint8_t* to = cell + layout.line_at(column / kPanel, 0) + column % kPanel * kQuad;
    const std::uint8_t *values = first + kBlock.num_halves * 2, *more = second + kBlock.num_halves * 2;
    if constexpr (kBlock.num_words == kCellQuads) {
        for (int word = 0; word < 2 * kCellQuads; ++word) {
            const std::uint8_t* from = word < kCellQuads ? values + word * 4 : more + (word - kCellQuads) * 4;
            const std::uint32_t four = word_at(from) ^ kBlock.flips;
            std::memcpy(to + word * layout.line_step(), &four, sizeof four);
        }
    } else {
        pair_nibbles(values, more, kBlock.num_words, to);
    }
    const CentredScale a = centred<kBlock>(first), b = centred<kBlock>(second);
    const std::int16_t scales[2] = {integer_of(a.scale, per_unit), integer_of(b.scale, per_unit)};
    std::uint8_t* integers = cell + layout.halves_at() + column * static_cast<int>(sizeof scales);
    std::memcpy(integers, scales, sizeof scales);
    if constexpr (kBlock.num_halves == 2) {
        const float per_minimum = per_unit / kCentre;
        const std::int16_t minima[2] = {integer_of(a.minimum, per_minimum), integer_of(b.minimum, per_minimum)};
        std::memcpy(integers + kStrip * sizeof minima, minima, sizeof minima);
    }
}

template <const WordBlock& kBlock>
void pack_with_integer_scales(const StripRows& from, const Layout& layout, int num_inputs, std::uint8_t* strip) {
    std::uint8_t zeros[kBlock.bytes] = {};  // once flipped
    std::memset(zeros + kBlock.num_halves * 2, static_cast<int>(kBlock.flips & 0xffu), kBlock.num_words * 4);
    const int num_groups = num_inputs / kCellInputs;
    std::uint8_t* cells = strip + layout.units_bytes();
    for (int column = 0; column < from.num_rows; ++column) {
        const std::uint8_t* row = from.rows[column];
        const float unit = unit_of<kBlock>(row, num_groups);
        const std::uint16_t stored = float_to_bf16(unit);
        std::memcpy(strip + column * 2, &stored, sizeof stored);
        for (int g = 0; g < num_groups; g += 2) {
            const std::uint8_t* block = row + static_cast<std::size_t>(g) * kBlock.bytes;
            pack_pair<kBlock>(layout, block, g + 1 < num_groups ? block + kBlock.bytes : zeros, per_unit(unit), column,
                              cells + static_cast<std::size_t>(g / 2) * layout.block_bytes());
        }
    }
}

using Halves = std::uint16_t __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));

Halves low_pairs(Halves a, Halves b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
Halves high_pairs(Halves a, Halves b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
Words low_pairs(Words a, Words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Words high_pairs(Words a, Words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

// A square of elements, as many vectors as a vector has elements. Pairing the two halves of the rows, log2 times,
// transposes it.
template <class Vector>
void transpose_square(Vector* rows) {
    constexpr int kSide = sizeof(Vector) / sizeof(rows[0][0]);
    for (int round = 1; round < kSide; round *= 2) {
        Vector paired[kSide];
        for (int i = 0; i < kSide / 2; ++i) {
            paired[2 * i] = low_pairs(rows[i], rows[i + kSide / 2]);
            paired[2 * i + 1] = high_pairs(rows[i], rows[i + kSide / 2]);
        }
        std::memcpy(rows, paired, sizeof paired);
    }
}

// (outputs, inputs) of elements becomes (inputs, 32 outputs).
template <class Vector>
void transpose(const StripRows& from, int num_inputs, std::uint8_t* strip) {
    constexpr int kElement = sizeof(Vector{}[0]);
    constexpr int kSide = sizeof(Vector) / kElement;
    const int whole_inputs = from.num_rows == kStrip ? num_inputs / kSide * kSide : 0;
    for (int k = 0; k < whole_inputs; k += kSide) {
        for (int column = 0; column < kStrip; column += kSide) {
            Vector square[kSide];
            for (int i = 0; i < kSide; ++i) {
                std::memcpy(&square[i], from.rows[column + i] + std::ptrdiff_t{k} * kElement, sizeof(Vector));
            }
            transpose_square(square);
            for (int i = 0; i < kSide; ++i) {
                std::memcpy(strip + (std::ptrdiff_t{k + i} * kStrip + column) * kElement, &square[i], sizeof(Vector));
            }
        }
    }
    for (int k = whole_inputs; k < num_inputs; ++k) {
        for (int column = 0; column < from.num_rows; ++column) {
            std::memcpy(strip + (std::ptrdiff_t{k} * kStrip + column) * kElement,
                        from.rows[column] + std::ptrdiff_t{k} * kElement, kElement);
        }
    }
}

// float16 weights become float32 in tiles that stay in the nearest cache.
void widen(const StripRows& from, int num_inputs, std::uint8_t* strip) {
    constexpr int kTile = 64;
    float tile[kStrip][kTile];
    const std::uint8_t* tile_rows[kStrip];
    for (int i = 0; i < kStrip; ++i) tile_rows[i] = reinterpret_cast<const std::uint8_t*>(tile[i]);
    for (int first = 0; first < num_inputs; first += kTile) {
        const int size = std::min(kTile, num_inputs - first);
        for (int column = 0; column < from.num_rows; ++column) {
            std::uint16_t halves[kTile];
            std::memcpy(halves, from.rows[column] + std::ptrdiff_t{first} * 2, static_cast<std::size_t>(size) * 2);
            for (int k = 0; k < size; ++k) tile[column][k] = half_to_float(halves[k]);
        }
        transpose<Words>({tile_rows, from.num_rows}, size, strip + std::ptrdiff_t{first} * kStrip * 4);
    }
}

static_assert(cell_bytes(kQ4_0) == layout_of(LayoutId::q4g32).cell_bytes());
static_assert(cell_bytes(kQ4_1) == layout_of(LayoutId::q4g32m).cell_bytes());
static_assert(cell_bytes(kQ8_0) == layout_of(LayoutId::q8g32).cell_bytes());
static_assert(kStrip * sizeof(std::uint16_t) == layout_of(LayoutId::bf16).cell_bytes());
static_assert(kStrip * sizeof(float) == layout_of(LayoutId::f32).cell_bytes());

}  // namespace

void pack_strip(const Matrix& matrix, SourceType source, const std::uint8_t* const* rows, int num_rows,
                std::uint8_t* strip) {
    const StripRows from{rows, num_rows};
    const int num_inputs = matrix.num_inputs;
    if (num_rows < kStrip) std::memset(strip, 0, matrix.strip_bytes());
    const Layout& layout = layout_of(matrix.layout);
    switch (source) {
        case SourceType::Q4_0:
            if (layout.integer_scales()) return pack_with_integer_scales<kQ4_0>(from, layout, num_inputs, strip);
            return pack_words<kQ4_0>(from, num_inputs, strip);
        case SourceType::Q4_1:
            if (layout.integer_scales()) return pack_with_integer_scales<kQ4_1>(from, layout, num_inputs, strip);
            return pack_words<kQ4_1>(from, num_inputs, strip);
        case SourceType::Q8_0:
            if (layout.integer_scales()) return pack_with_integer_scales<kQ8_0>(from, layout, num_inputs, strip);
            return pack_words<kQ8_0>(from, num_inputs, strip);
        case SourceType::BF16:
            return transpose<Halves>(from, num_inputs, strip);
        case SourceType::F32:
            return transpose<Words>(from, num_inputs, strip);
        case SourceType::F16:
            return widen(from, num_inputs, strip);
        default:
            return pack_strip_by_groups(matrix, source, rows, num_rows, strip);
    }
}

}  // namespace freehold
