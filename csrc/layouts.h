// Packed weight layouts, described as data: the one place that says where a packed weight lies.
//
// A matrix (N outputs, K inputs) is cut into strips of 32 outputs, two panels of 16. A strip is a run of blocks in
// ascending K; a block is a head and some cells; everything is a multiple of 64 bytes.
//
// A cell of a quantized layout holds 32 inputs, of layouts with integer scales 64:
//
//     values of panel 0 | values of panel 1 | scales of the 32 outputs | minima of the 32 outputs (if any)
//
// Values stand in lines of 64 bytes: 16 outputs times 4 consecutive inputs (an input quad), as the 4-way byte dot
// products of x86 and Arm want them. A cell of 32 has 8 quads. A plane of w bits a value packs them into w lines: line
// s holds quads s, s + w, s + 2w, ... from the low bits of each byte up. Values of 3, 5 and 6 bits are two planes: the
// low bits, then the high ones. A cell of 64 has 16 quads in twice as many lines, 8 of nibbles: a line's low nibbles
// are of its first group, the high ones of its second. Of 8-bit values in cells of 64, lines of the two panels
// alternate, so that a tile of both reads them one after the other.
//
// Scales of one level are float16 numbers in the cell, one for its 32 inputs. Scales of two levels stand in the head,
// for the 256 inputs of 8 cells, and cells hold values alone:
//
//     float16 factors of the 32 outputs | the same for minima (if any) |
//     a byte for each output and group, groups ascending | the same for minima (if any; or both in one byte's nibbles)
//
// A scale is the float32 product of factor and integer, which is exact (11 bits times 8).
//
// Integer scales are 16-bit multiples of a unit that each output has, a power of two; see integer_scales.h. Units stand
// before a strip's first cell, scales and minima in the cells, those of a cell's two groups side by side:
//
//     bf16 units of the 32 outputs | cells: values of both panels | (int16, int16) of the 32 outputs | minima (if any)
//
// Values are stored unsigned:
//
//     weight = scale * (stored - offset) + minimum
//
// rounded after the product and after the sum. A layout with a value table stores indices into it. Unquantized layouts
// (bf16, f32) have one input a cell and neither scales nor minima. Outputs past N are zero weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "inlining.h"

namespace freehold {

inline constexpr int kPanel = 16;          // outputs in a vector
inline constexpr int kStrip = 2 * kPanel;  // outputs in a strip
inline constexpr int kQuad = 4;            // inputs in one lane of a line
inline constexpr int kLineBytes = kPanel * kQuad;
inline constexpr int kCellInputs = 32;  // of a quantized cell
inline constexpr int kCellQuads = kCellInputs / kQuad;
inline constexpr int kPairInputs = 64;  // of one with integer scales: a pair of groups
inline constexpr int kBlockCells = 8;   // that share a factor
inline constexpr int kFineGroup =
    16;  // inputs that share one activation scale where precision needs it; else a weight group

enum class Scales : std::uint8_t {
    none,
    halves,   // one level
    bytes,    // two levels, signed integers
    nibbles,  // two levels, the scale in a byte's low nibble, the minimum in its high nibble
    integers  // one level, 16-bit multiples of an output's unit
};

struct Layout {
    const char* name;
    int low_bits;   // of the first plane
    int high_bits;  // of the second plane; 0: there is none
    int group;      // inputs that share a scale
    Scales scales;
    bool minimum;
    int offset;  // subtracted from a stored value
    bool table;  // stored values are indices into kValueTable

    FREEHOLD_INLINE constexpr int bits() const { return low_bits + high_bits; }
    // The largest stored value, after the table.
    FREEHOLD_INLINE constexpr int highest() const { return table ? 255 : (1 << bits()) - 1; }
    FREEHOLD_INLINE constexpr bool quantized() const { return scales != Scales::none; }
    FREEHOLD_INLINE constexpr bool two_level() const { return scales == Scales::bytes || scales == Scales::nibbles; }
    FREEHOLD_INLINE constexpr bool integer_scales() const { return scales == Scales::integers; }

    FREEHOLD_INLINE constexpr int cell_inputs() const {
        if (!quantized()) return 1;
        return integer_scales() ? kPairInputs : kCellInputs;
    }
    // Lines of a plane of so many bits.
    FREEHOLD_INLINE constexpr int plane_lines(int plane_bits) const { return plane_bits * cell_inputs() / kCellInputs; }
    FREEHOLD_INLINE constexpr int cell_groups() const { return cell_inputs() / group; }
    FREEHOLD_INLINE constexpr int num_cells() const { return two_level() ? kBlockCells : 1; }
    FREEHOLD_INLINE constexpr int block_inputs() const { return num_cells() * cell_inputs(); }

    // From the beginning of a cell.
    FREEHOLD_INLINE constexpr int panel_bytes() const { return kPanel * cell_inputs() * bits() / 8; }
    FREEHOLD_INLINE constexpr bool panels_alternate() const { return integer_scales() && bits() == 8; }
    FREEHOLD_INLINE constexpr int line_step() const { return panels_alternate() ? 2 * kLineBytes : kLineBytes; }
    FREEHOLD_INLINE constexpr int line_at(int panel, int line) const {
        return panel * (panels_alternate() ? kLineBytes : panel_bytes()) + line * line_step();
    }
    FREEHOLD_INLINE constexpr int halves_at() const { return 2 * panel_bytes(); }
    FREEHOLD_INLINE constexpr int cell_bytes() const {
        const bool here = scales == Scales::halves || integer_scales();
        return halves_at() + (here ? halves_bytes() * cell_groups() : 0);
    }

    // From the beginning of a block.
    FREEHOLD_INLINE constexpr int integers_at() const { return halves_bytes(); }
    FREEHOLD_INLINE constexpr int integer_minima_at() const {
        return integers_at() + num_cells() * cell_groups() * kStrip;
    }
    FREEHOLD_INLINE constexpr int head_bytes() const {
        if (!two_level()) return 0;
        const bool apart = minimum && scales == Scales::bytes;
        return integer_minima_at() + (apart ? integer_minima_at() - integers_at() : 0);
    }
    FREEHOLD_INLINE constexpr int block_bytes() const { return head_bytes() + num_cells() * cell_bytes(); }
    // Before a strip's first block.
    FREEHOLD_INLINE constexpr int units_bytes() const { return integer_scales() ? kStrip * 2 : 0; }
    FREEHOLD_INLINE constexpr std::size_t strip_bytes(int num_inputs) const {
        const int blocks = (num_inputs + block_inputs() - 1) / block_inputs();
        return static_cast<std::size_t>(units_bytes()) +
               static_cast<std::size_t>(blocks) * static_cast<std::size_t>(block_bytes());
    }

  private:
    // 16-bit numbers of the 32 outputs, for scales and for minima
    FREEHOLD_INLINE constexpr int halves_bytes() const { return kStrip * 2 * (minimum ? 2 : 1); }
};

enum class LayoutId : std::uint8_t {
    q4g32,
    q4g32i,
    q4g32m,
    q4g32mi,
    q5g32,
    q5g32m,
    q8g32,
    q8g32i,
    t4g32,
    t4g32s,
    q2g16sm,
    q3g16s,
    q4g32sm,
    q5g32sm,
    q6g16s,
    bf16,
    f32
};
inline constexpr int kNumLayouts = 17;

inline constexpr Layout kLayouts[kNumLayouts] = {
    {"q4g32", 4, 0, 32, Scales::halves, false, 8, false},       // Q4_0
    {"q4g32i", 4, 0, 32, Scales::integers, false, 8, false},    // Q4_0 for int8 activations
    {"q4g32m", 4, 0, 32, Scales::halves, true, 0, false},       // Q4_1
    {"q4g32mi", 4, 0, 32, Scales::integers, true, 8, false},    // Q4_1 for int8 activations
    {"q5g32", 4, 1, 32, Scales::halves, false, 16, false},      // Q5_0
    {"q5g32m", 4, 1, 32, Scales::halves, true, 0, false},       // Q5_1
    {"q8g32", 8, 0, 32, Scales::halves, false, 128, false},     // Q8_0
    {"q8g32i", 8, 0, 32, Scales::integers, false, 128, false},  // Q8_0 for int8 activations
    {"t4g32", 4, 0, 32, Scales::halves, false, 128, true},      // IQ4_NL
    {"t4g32s", 4, 0, 32, Scales::bytes, false, 128, true},      // IQ4_XS
    {"q2g16sm", 2, 0, 16, Scales::nibbles, true, 0, false},     // Q2_K
    {"q3g16s", 2, 1, 16, Scales::bytes, false, 4, false},       // Q3_K
    {"q4g32sm", 4, 0, 32, Scales::bytes, true, 0, false},       // Q4_K
    {"q5g32sm", 4, 1, 32, Scales::bytes, true, 0, false},       // Q5_K
    {"q6g16s", 4, 2, 16, Scales::bytes, false, 32, false},      // Q6_K
    {"bf16", 16, 0, 1, Scales::none, false, 0, false},          // BF16
    {"f32", 32, 0, 1, Scales::none, false, 0, false},           // F32, F16
};

// The values of IQ4_NL and IQ4_XS plus 128.
inline constexpr std::uint8_t kValueTable[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                 129, 141, 153, 166, 181, 197, 217, 241};

FREEHOLD_INLINE constexpr const Layout& layout_of(LayoutId id) { return kLayouts[static_cast<int>(id)]; }

// The layout with integer scales that holds the same values, or `id` if there is none.
FREEHOLD_INLINE constexpr LayoutId with_integer_scales(LayoutId id) {
    if (id == LayoutId::q4g32) return LayoutId::q4g32i;
    if (id == LayoutId::q4g32m) return LayoutId::q4g32mi;
    if (id == LayoutId::q8g32) return LayoutId::q8g32i;
    return id;
}

FREEHOLD_INLINE constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

namespace layout_checks {
constexpr bool everything_is_whole_lines() {
    for (const Layout& l : kLayouts) {
        if (l.cell_bytes() % kLineBytes != 0 || l.halves_at() % kLineBytes != 0) return false;
        if (l.head_bytes() % kLineBytes != 0) return false;
    }
    return true;
}
// Integer dot products of a group are exact in float32 only below 2^24.
constexpr bool every_group_sum_is_exact() {
    for (const Layout& l : kLayouts) {
        if (l.quantized() && (l.highest() + 1) * 127 * l.group >= 1 << 24) return false;
    }
    return true;
}
// Bits per 1000 weights.
constexpr int millibits(LayoutId id) {
    const Layout& l = layout_of(id);
    return l.block_bytes() * 8 * 1000 / (kStrip * l.block_inputs());
}
static_assert(everything_is_whole_lines());
static_assert(every_group_sum_is_exact());
static_assert(millibits(LayoutId::q4g32) == 4500);    // as in the file
static_assert(millibits(LayoutId::q4g32m) == 5000);   // as in the file
static_assert(millibits(LayoutId::q5g32) == 5500);    // as in the file
static_assert(millibits(LayoutId::q5g32m) == 6000);   // as in the file
static_assert(millibits(LayoutId::q8g32) == 8500);    // as in the file
static_assert(millibits(LayoutId::t4g32) == 4500);    // as in the file
static_assert(millibits(LayoutId::t4g32s) == 4312);   // 4.25 in the file, whose integers have 6 bits, not 8
static_assert(millibits(LayoutId::q2g16sm) == 2625);  // as in the file
static_assert(millibits(LayoutId::q3g16s) == 3562);   // 3.4375 in the file: 6 bits
static_assert(millibits(LayoutId::q4g32sm) == 4625);  // 4.5 in the file: 6 bits
static_assert(millibits(LayoutId::q5g32sm) == 5625);  // 5.5 in the file: 6 bits
static_assert(millibits(LayoutId::q6g16s) == 6562);   // as in the file
static_assert(millibits(LayoutId::bf16) == 16000);
static_assert(millibits(LayoutId::f32) == 32000);
static_assert(millibits(LayoutId::q4g32i) == 4500);   // and 16 bits an output
static_assert(millibits(LayoutId::q4g32mi) == 5000);  // and 16 bits an output
static_assert(millibits(LayoutId::q8g32i) == 8500);   // and 16 bits an output
}  // namespace layout_checks

}  // namespace freehold
