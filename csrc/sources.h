// Weight types as model files store them (ggml's names), and how one group of them decodes without loss.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layouts.h"

namespace freehold {

enum class SourceType : std::uint8_t {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS
};
inline constexpr int kNumSources = 15;

struct Source {
    const char* name;
    int block_elements;
    int block_bytes;
    LayoutId layout;  // the smallest native layout that holds every value exactly

    constexpr std::size_t row_bytes(int num_inputs) const {
        return static_cast<std::size_t>(num_inputs / block_elements) * static_cast<std::size_t>(block_bytes);
    }
};

inline constexpr Source kSources[kNumSources] = {
    {"F32", 1, 4, LayoutId::f32},         {"F16", 1, 2, LayoutId::f32},          {"BF16", 1, 2, LayoutId::bf16},
    {"Q4_0", 32, 18, LayoutId::q4g32},    {"Q4_1", 32, 20, LayoutId::q4g32m},    {"Q5_0", 32, 22, LayoutId::q5g32},
    {"Q5_1", 32, 24, LayoutId::q5g32m},   {"Q8_0", 32, 34, LayoutId::q8g32},     {"Q2_K", 256, 84, LayoutId::q2g16sm},
    {"Q3_K", 256, 110, LayoutId::q3g16s}, {"Q4_K", 256, 144, LayoutId::q4g32sm}, {"Q5_K", 256, 176, LayoutId::q5g32sm},
    {"Q6_K", 256, 210, LayoutId::q6g16s}, {"IQ4_NL", 32, 18, LayoutId::t4g32},   {"IQ4_XS", 256, 136, LayoutId::t4g32s},
};

constexpr const Source& source_of(SourceType type) { return kSources[static_cast<int>(type)]; }

// One group of a row as layouts.h stores it. The halves are the scale and the minimum, or with two levels the factors
// of both; 16-bit numbers keep their exact bits.
struct Group {
    std::uint8_t stored[32];
    std::uint16_t scale_half;
    std::uint16_t minimum_half;
    std::int8_t scale;    // two levels only
    std::int8_t minimum;  // two levels only
};

// Decodes group number `index` (of the layout's group size) of the row that starts at `row`. Quantized types only.
using GroupDecoder = void (*)(const std::uint8_t* row, int index, Group& group);
GroupDecoder group_decoder(SourceType type);

}  // namespace freehold
