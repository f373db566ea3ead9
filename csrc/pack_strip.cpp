// Packs strips at the memory's speed where a layout holds a type's bytes in another order and nothing else.
//
// Types whose blocks hold 4 consecutive inputs in 32 bits, as lines do, are transposed word by word, others of 16 and
// 32 bits in small squares. Everything else goes through decoders of groups.
#include <algorithm>
#include <cstddef>
#include <cstring>

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
    switch (source) {
        case SourceType::Q4_0:
            return pack_words<kQ4_0>(from, num_inputs, strip);
        case SourceType::Q4_1:
            return pack_words<kQ4_1>(from, num_inputs, strip);
        case SourceType::Q8_0:
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
