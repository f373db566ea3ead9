// Packed weight layouts, described as data: the one place that says where a packed weight lies.
//
// A matrix (N outputs, K inputs) is cut into strips of 32 outputs. A strip is a run of cells in ascending K; a cell
// holds `group` inputs of the strip's two panels of 16 outputs:
//
//     values of panel 0 | values of panel 1 | scales of the 32 outputs | minima of the 32 outputs (if any)
//
// 4- and 8-bit values stand in lines of 64 bytes: 16 outputs times 4 consecutive inputs (an input quad), as the 4-way
// byte dot products of x86 and Arm want them. With 4 bits the low nibbles of line s are quad s, the high nibbles quad
// s + group / 8. Values are stored unsigned: weight = scale * (stored - offset) + minimum. Unquantized layouts (bf16,
// f32) have one input a cell and neither scales nor minima. Every cell is a multiple of 64 bytes.
//
// Outputs past N are zero weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inlining.h"

namespace freehold {

inline constexpr int kPanel = 16;          // outputs in a vector
inline constexpr int kStrip = 2 * kPanel;  // outputs in a strip
inline constexpr int kQuad = 4;            // inputs in one lane of a line
inline constexpr int kLineBytes = kPanel * kQuad;
inline constexpr int kFineGroup =
    16;  // inputs that share one activation scale where precision needs it; else a weight group

enum class ScaleType : std::uint8_t { none, f16, f32 };

struct Layout {
    const char* name;
    int bits;   // of one stored value
    int group;  // inputs in a cell
    ScaleType scale;
    bool minimum;
    int offset;  // subtracted from a stored value

    FREEHOLD_INLINE constexpr bool quantized() const { return scale != ScaleType::none; }
    FREEHOLD_INLINE constexpr int scale_bytes() const {
        return scale == ScaleType::none ? 0 : scale == ScaleType::f16 ? 2 : 4;
    }
    FREEHOLD_INLINE constexpr int panel_bytes() const { return kPanel * group * bits / 8; }
    FREEHOLD_INLINE constexpr int num_lines() const { return panel_bytes() / kLineBytes; }
    FREEHOLD_INLINE constexpr int scales_at() const { return 2 * panel_bytes(); }
    FREEHOLD_INLINE constexpr int minima_at() const { return scales_at() + kStrip * scale_bytes(); }
    FREEHOLD_INLINE constexpr int cell_bytes() const { return minima_at() + (minimum ? kStrip * scale_bytes() : 0); }
    FREEHOLD_INLINE constexpr std::size_t strip_bytes(int num_inputs) const {
        return static_cast<std::size_t>(num_inputs / group) * static_cast<std::size_t>(cell_bytes());
    }
};

enum class LayoutId : std::uint8_t { q4g32, q4g32m, q8g32, q8g32f, q8g32fm, q8g16f, q8g16fm, bf16, f32 };
inline constexpr int kNumLayouts = 9;

inline constexpr Layout kLayouts[kNumLayouts] = {
    {"q4g32", 4, 32, ScaleType::f16, false, 8},     // Q4_0
    {"q4g32m", 4, 32, ScaleType::f16, true, 0},     // Q4_1
    {"q8g32", 8, 32, ScaleType::f16, false, 128},   // Q8_0, Q5_0, IQ4_NL
    {"q8g32f", 8, 32, ScaleType::f32, false, 128},  // IQ4_XS
    {"q8g32fm", 8, 32, ScaleType::f32, true, 0},    // Q4_K, Q5_K, Q5_1
    {"q8g16f", 8, 16, ScaleType::f32, false, 128},  // Q3_K, Q6_K
    {"q8g16fm", 8, 16, ScaleType::f32, true, 0},    // Q2_K
    {"bf16", 16, 1, ScaleType::none, false, 0},     // BF16
    {"f32", 32, 1, ScaleType::none, false, 0},      // F32, F16
};

FREEHOLD_INLINE constexpr const Layout& layout_of(LayoutId id) { return kLayouts[static_cast<int>(id)]; }

FREEHOLD_INLINE constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

namespace layout_checks {
constexpr bool every_cell_is_whole_lines() {
    for (const Layout& l : kLayouts) {
        if (l.cell_bytes() % kLineBytes != 0 || l.scales_at() % kLineBytes != 0) return false;
    }
    return true;
}
// Integer dot products of a group are exact in float32 only below 2^24.
constexpr bool every_group_sum_is_exact() {
    for (const Layout& l : kLayouts) {
        if (l.quantized() && (1 << l.bits) * 127 * l.group >= 1 << 24) return false;
    }
    return true;
}
static_assert(every_cell_is_whole_lines());
static_assert(every_group_sum_is_exact());
static_assert(layout_of(LayoutId::q4g32).cell_bytes() == 512 + 64);
static_assert(layout_of(LayoutId::q4g32m).cell_bytes() == 512 + 64 + 64);
static_assert(layout_of(LayoutId::q8g32).cell_bytes() == 1024 + 64);
static_assert(layout_of(LayoutId::q8g32f).cell_bytes() == 1024 + 128);
static_assert(layout_of(LayoutId::q8g32fm).cell_bytes() == 1024 + 128 + 128);
static_assert(layout_of(LayoutId::q8g16f).cell_bytes() == 512 + 128);
static_assert(layout_of(LayoutId::q8g16fm).cell_bytes() == 512 + 128 + 128);
static_assert(layout_of(LayoutId::bf16).cell_bytes() == 64);
static_assert(layout_of(LayoutId::f32).cell_bytes() == 128);
}  // namespace layout_checks

}  // namespace freehold
