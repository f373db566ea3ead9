// Packs strips at the memory's speed where a layout holds a type's bytes in another order and nothing else.
//
// Types whose blocks hold 4 consecutive inputs in 32 bits, as lines do, are transposed word by word. bf16 and float32
// weights are transposed element by element. Everything else goes through decoders of groups.
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

template <class Element, class Read>
void transpose(const StripRows& from, int num_inputs, std::uint8_t* strip, Read&& read) {
    constexpr int kTile = 64;  // inputs whose cells stay in the nearest cache
    for (int first = 0; first < num_inputs; first += kTile) {
        const int end = first + kTile < num_inputs ? first + kTile : num_inputs;
        for (int column = 0; column < from.num_rows; ++column) {
            for (int k = first; k < end; ++k) {
                const Element value = read(from.rows[column], k);
                std::memcpy(strip + (static_cast<std::size_t>(k) * kStrip + column) * sizeof value, &value,
                            sizeof value);
            }
        }
    }
}

template <class Element>
Element element_at(const std::uint8_t* row, int k) {
    Element value;
    std::memcpy(&value, row + static_cast<std::size_t>(k) * sizeof value, sizeof value);
    return value;
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
            return transpose<std::uint16_t>(from, num_inputs, strip, element_at<std::uint16_t>);
        case SourceType::F32:
            return transpose<float>(from, num_inputs, strip, element_at<float>);
        case SourceType::F16:
            return transpose<float>(from, num_inputs, strip, [](const std::uint8_t* row, int k) {
                return half_to_float(element_at<std::uint16_t>(row, k));
            });
        default:
            return pack_strip_by_groups(matrix, source, rows, num_rows, strip);
    }
}

}  // namespace freehold
