// Tiles of linear layers over nibbles with integer scales, for int8 activations: integer_scales.h has the arithmetic.
//
// Dot products, multiplications and multiply-adds share the processor's two multipliers, so what counts is how many of
// them there are beside the 16 dot products of a cell: two with a scale for each 32 activations, and one of minima.
//
// Two dot products stand in the halves of a 32-bit lane. The one of the higher half is computed first and shifted up;
// the lower one is added to 2^15, so that it never borrows from the higher one, and the sign bit is put right at the
// end. Nibbles of the high half of a byte aren't shifted down where the shift can do that: dot products are 16 times as
// large then.
#pragma once

#include "integer_scales.h"
#include "kernels/tile.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// Dot products of a pair of groups, or of halves of one.
template <int Rows, int Vectors>
struct DotPairs {
    I at[Rows][Vectors];
};

enum class NibbleAt { low, high, high_in_place };

template <NibbleAt At>
FREEHOLD_INLINE I nibbles_of(I line) {
    if constexpr (At == NibbleAt::low) return i_and(line, i_set(0x0f0f0f0f));
    if constexpr (At == NibbleAt::high) return i_and(i_shift_right<4>(line), i_set(0x0f0f0f0f));
    return i_and(line, i_set(static_cast<int>(0xf0f0f0f0)));
}

// Which quads of a cell a dot product covers, and where a byte holds them. `FirstInput` counts in the record.
template <NibbleAt At, int FirstLine, int Quads, int FirstInput>
struct DotSpan {};

template <const Layout& L, int Group, int Rows, int Vectors>
struct PairCell {
    using Record = ActivationRecord<Group>;
    const TileWeights& w;
    std::size_t cell;
    const std::uint8_t* records;
    std::ptrdiff_t stride;

    FREEHOLD_INLINE const Record& record(int row) const {
        return *reinterpret_cast<const Record*>(records + row * stride);
    }
    template <NibbleAt At, int FirstLine, int Quads, int FirstInput>
    FREEHOLD_INLINE void add_dots(DotPairs<Rows, Vectors>& dots, DotSpan<At, FirstLine, Quads, FirstInput>) const {
        unrolled<Quads>([&](auto quad_number) FREEHOLD_INLINE_LAMBDA {
            I weights[Vectors];
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                const std::uint8_t* lines = w.cell(v, cell) + w.panel_of(v) * L.panel_bytes();
                weights[v] = nibbles_of<At>(i_load(lines + (FirstLine + quad_number) * kLineBytes));
            });
            unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
                const Quad<L.highest()> four = quad<L.highest()>(record(r).numbers + FirstInput + quad_number * kQuad);
                unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                    dots.at[r][v] = dot<L.highest()>(dots.at[r][v], weights[v], four);
                });
            });
        });
    }
    // Group `First` of the record becomes the lower half, the one behind it the higher.
    template <int First, class High, class Low>
    FREEHOLD_INLINE DotPairs<Rows, Vectors> pairs(High high, Low low) const {
        DotPairs<Rows, Vectors> dots;
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const I start = i_set(record(r).starts[First + 1]);
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { dots.at[r][v] = start; });
        });
        add_dots(dots, high);
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const I start = i_set(record(r).starts[First]);
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                dots.at[r][v] = i_add(i_shift_left<shift_to_high(High{})>(dots.at[r][v]), start);
            });
        });
        add_dots(dots, low);
        return dots;
    }

  private:
    template <NibbleAt At, int FirstLine, int Quads, int FirstInput>
    static constexpr int shift_to_high(DotSpan<At, FirstLine, Quads, FirstInput>) {
        return At == NibbleAt::high_in_place ? 12 : 16;
    }
};

// What a cell's scales and minima make of its dot products.
template <const Layout& L, int Rows, int Vectors>
struct CellSums {
    I at[Rows][Vectors];

    // `scales`: of two groups, or twice of one; `row_scales(r)` those of the row.
    template <class RowScales>
    FREEHOLD_INLINE void add(const DotPairs<Rows, Vectors>& dots, const I (&scales)[Vectors], RowScales&& row_scales) {
        unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
            const I own = pair_at(row_scales(r));
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
                const I both = i_scaled_pairs(scales[v], own);
                at[r][v] = i_add_dot_pairs(at[r][v], i_xor(dots.at[r][v], i_set(0x8000)), both);
            });
        });
    }
    FREEHOLD_INLINE static I pair_at(const std::int16_t* p) {
        int both;
        std::memcpy(&both, p, sizeof both);
        return i_set(both);
    }
};

// A cell's scales, and what its minima add.
template <const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE CellSums<L, Rows, Vectors> minima_of(const PairCell<L, Group, Rows, Vectors>& cell,
                                                     I (&scales)[Vectors]) {
    I minima[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        const std::uint8_t* integers = cell.w.cell(v, cell.cell) + L.halves_at() + cell.w.panel_of(v) * kLineBytes;
        scales[v] = i_load(integers);
        if constexpr (L.minimum) minima[v] = i_load(integers + 2 * kLineBytes);
    });
    CellSums<L, Rows, Vectors> found;
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            found.at[r][v] = i_zero();
            if constexpr (L.minimum) {
                found.at[r][v] = i_dot_pairs(minima[v], CellSums<L, Rows, Vectors>::pair_at(cell.record(r).sums));
            }
        });
    });
    return found;
}

// A panel's dot products with one row. Each line is loaded once, lines in ascending order: int8_row.h says why.
template <const Layout& L, int Group>
FREEHOLD_INLINE void panel_dots(const std::uint8_t* lines, const ActivationRecord<Group>& record,
                                I (&pairs)[ActivationRecord<Group>::kGroups / 2]) {
    constexpr int kGroups = ActivationRecord<Group>::kGroups;
    constexpr int kHighest = L.highest();
    I dots[kGroups];
    unrolled<kGroups>([&](auto g) FREEHOLD_INLINE_LAMBDA { dots[g] = i_set(record.starts[g]); });
    unrolled<L.plane_lines(L.low_bits)>([&](auto number) FREEHOLD_INLINE_LAMBDA {
        constexpr int kInput = number * kQuad;
        constexpr int kLow = kInput / Group, kHigh = (kInput + kCellInputs) / Group;
        constexpr NibbleAt kAt = kHigh % 2 == 0 ? NibbleAt::high : NibbleAt::high_in_place;
        const I line = i_load(lines + number * kLineBytes);
        const std::int8_t* x = record.numbers + kInput;
        dots[kLow] = dot<kHighest>(dots[kLow], nibbles_of<NibbleAt::low>(line), quad<kHighest>(x));
        dots[kHigh] = dot<kHighest>(dots[kHigh], nibbles_of<kAt>(line), quad<kHighest>(x + kCellInputs));
    });
    unrolled<kGroups / 2>([&](auto p) FREEHOLD_INLINE_LAMBDA {
        constexpr int kShift = (2 * p + 1) * Group < kCellInputs ? 16 : 12;
        pairs[p] = i_add(i_shift_left<kShift>(dots[2 * p + 1]), dots[2 * p]);
    });
}

// The same sums as `pair_cell`'s, of a single row.
template <const Layout& L, int Group, int Vectors>
FREEHOLD_INLINE void pair_cell_of_row(Sums<1, Vectors>& sums, const PairCell<L, Group, 1, Vectors>& cell) {
    const ActivationRecord<Group>& record = cell.record(0);
    constexpr int kPairs = ActivationRecord<Group>::kGroups / 2;
    I pairs[Vectors][kPairs];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        panel_dots<L>(cell.w.cell(v, cell.cell) + cell.w.panel_of(v) * L.panel_bytes(), record, pairs[v]);
    });
    I scales[Vectors];
    CellSums<L, 1, Vectors> found = minima_of(cell, scales);
    unrolled<kPairs>([&](auto p) FREEHOLD_INLINE_LAMBDA {
        DotPairs<1, Vectors> dots;
        I own[Vectors];
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
            dots.at[0][v] = pairs[v][p];
            if constexpr (kPairs == 1) own[v] = scales[v];
            if constexpr (kPairs == 2) own[v] = p == 0 ? i_low_twice(scales[v]) : i_high_twice(scales[v]);
        });
        found.add(dots, own, [&](int) FREEHOLD_INLINE_LAMBDA { return record.scales + 2 * p; });
    });
    unrolled<Vectors>([&](auto v)
                          FREEHOLD_INLINE_LAMBDA { sums.at[0][v] = f_add(sums.at[0][v], f_from_int(found.at[0][v])); });
}

template <const Layout& L, int Group, int Rows, int Vectors>
FREEHOLD_INLINE void pair_cell(Sums<Rows, Vectors>& sums, const PairCell<L, Group, Rows, Vectors>& cell) {
    I scales[Vectors];
    CellSums<L, Rows, Vectors> found = minima_of(cell, scales);
    constexpr int kQuads = Group / kQuad;
    if constexpr (Group == kCellInputs) {
        using Second = DotSpan<NibbleAt::high_in_place, 0, kQuads, kCellInputs>;
        using First = DotSpan<NibbleAt::low, 0, kQuads, 0>;
        const auto dots = cell.template pairs<0>(Second{}, First{});
        found.add(dots, scales, [&](int r) FREEHOLD_INLINE_LAMBDA { return cell.record(r).scales; });
    } else {
        I twice[Vectors];
        {
            const auto dots = cell.template pairs<0>(DotSpan<NibbleAt::low, kQuads, kQuads, Group>{},
                                                     DotSpan<NibbleAt::low, 0, kQuads, 0>{});
            unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { twice[v] = i_low_twice(scales[v]); });
            found.add(dots, twice, [&](int r) FREEHOLD_INLINE_LAMBDA { return cell.record(r).scales; });
        }
        const auto dots = cell.template pairs<2>(DotSpan<NibbleAt::high_in_place, kQuads, kQuads, 3 * Group>{},
                                                 DotSpan<NibbleAt::high, 0, kQuads, 2 * Group>{});
        unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA { twice[v] = i_high_twice(scales[v]); });
        found.add(dots, twice, [&](int r) FREEHOLD_INLINE_LAMBDA { return cell.record(r).scales + 2; });
    }
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        unrolled<Vectors>(
            [&](auto v) FREEHOLD_INLINE_LAMBDA { sums.at[r][v] = f_add(sums.at[r][v], f_from_int(found.at[r][v])); });
    });
}

template <const Layout& L, int Group, int Rows, int Vectors>
void pair_tile(const LinearCall& call, const TileWeights& w, int row, float* out) {
    Sums<Rows, Vectors> sums;
    sums.prefetch(call, out);
    const std::ptrdiff_t stride = records_stride(call.input->stride, Group);
    const std::uint8_t* records = call.input->records + row * stride;
    w.prefetch_units();
    for (std::size_t block = L.units_bytes(); block < w.strip_bytes; block += L.block_bytes()) {
        const CellAt at = cell_at<L>(block, 0);
        w.prefetch(at);
        const PairCell<L, Group, Rows, Vectors> cell{w, at.cell, records, stride};
        if constexpr (Rows == 1) {
            pair_cell_of_row(sums, cell);
        } else {
            pair_cell(sums, cell);
        }
        records += sizeof(ActivationRecord<Group>);
    }
    F units[Vectors];
    unrolled<Vectors>([&](auto v) FREEHOLD_INLINE_LAMBDA {
        units[v] = f_mul(f_bf16(w.cell(v, 0) + w.panel_of(v) * kPanel * 2), f_set(kSumUnits));
    });
    unrolled<Rows>([&](auto r) FREEHOLD_INLINE_LAMBDA {
        const F top = f_set(call.input->tops[row + r]);
        unrolled<Vectors>([&](auto v)
                              FREEHOLD_INLINE_LAMBDA { sums.at[r][v] = f_mul(f_mul(sums.at[r][v], units[v]), top); });
    });
    sums.store(call, out);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
