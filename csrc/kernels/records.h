// From a row's quantized parts to the records that tiles of weights with integer scales read (pair_tiles.h).
#pragma once

#include "integer_scales.h"
#include "kernels.h"
#include "kernels/integers.h"

namespace freehold::FREEHOLD_ISA {
namespace {

// The first `count` of 16 lanes, zeros behind them.
FREEHOLD_INLINE I load_first(const std::int32_t* p, int count) {
    return f_bits(load_first(reinterpret_cast<const float*>(p), count));
}

// What takes the centre of nibbles away: number 0 and 1 of a pair stand in low nibbles if the group is 16, else 1 in
// high ones, where dot products are 16 times as large. Those that become lower halves begin at 2^15.
template <int Group>
FREEHOLD_INLINE I nibble_starts_of(I sums) {
    const I bias = i_select(lanes_of(0x5555), i_set(0x8000), i_zero());
    const I centre = i_shift_left<3>(sums), shifted = i_shift_left<7>(sums);
    constexpr int kShiftedLanes = Group == kCellInputs ? 0xaaaa : 0x8888;
    return i_sub(bias, i_select(lanes_of(kShiftedLanes), shifted, centre));
}

// What takes the offset of 8-bit weights away, and half a step to round by (byte_pairs.h).
FREEHOLD_INLINE I byte_starts_of(I sums) { return i_sub(i_set(1 << (kByteShift - 1)), i_shift_left<7>(sums)); }

template <int Group>
void fill_records_of(const Activations& a, int row) {
    using Record = ActivationRecord<Group>;
    const int num_scales = a.stride / Group, num_sums = a.stride / kCellInputs;
    const float* scales = a.scale + std::ptrdiff_t{row} * num_scales;
    const float* scaled_sums = a.scaled_sums32 + std::ptrdiff_t{row} * num_sums;
    const std::int32_t* sums = a.sums + std::ptrdiff_t{row} * num_scales;
    const std::int8_t* numbers = a.q + std::ptrdiff_t{row} * a.stride;
    std::uint8_t* records = a.records + row * records_stride(a.stride, Group);

    I bits = i_zero();  // scales are not negative; what isn't finite is above all numbers
    for (int i = 0; i < num_scales; i += kPanel) bits = i_max(bits, f_bits(load_first(scales + i, num_scales - i)));
    const float top = bit_cast<float>(i_highest(bits));
    a.tops[row] = top;
    const bool useful = top > 0.0f && top <= __FLT_MAX__;  // else the product with `top` tells
    const F factor = f_set(useful ? kTopScale / top : 0.0f), sum_factor = f_set(useful ? kTopSums / top : 0.0f);

    constexpr int kTogether = kPanel / Record::kGroups;  // records
    for (int first = 0; first < num_scales; first += kPanel) {
        alignas(64) std::int32_t nibble_starts[kPanel], byte_starts[kPanel];
        alignas(64) std::int16_t integers[kPanel], sum_integers[kPanel];
        const int first_sum = first * Group / kCellInputs;
        const I of_groups = load_first(sums + first, num_scales - first);
        i_store(nibble_starts, nibble_starts_of<Group>(of_groups));
        i_store(byte_starts, byte_starts_of(of_groups));
        const F own = load_first(scales + first, num_scales - first);
        const F own_sums = load_first(scaled_sums + first_sum, num_sums - first_sum);
        i_store_halves(integers, useful ? rounded(own, factor) : i_zero());
        i_store_halves(sum_integers, useful ? rounded(own_sums, sum_factor) : i_zero());
        for (int i = 0; i < kTogether && first + i * Record::kGroups < num_scales; ++i) {
            auto& record = *reinterpret_cast<Record*>(records);
            const int here = (first / Record::kGroups + i) * kPairInputs;
            const int known = a.stride - here < kPairInputs ? kCellInputs : kPairInputs;
            std::memcpy(record.numbers, numbers + here, static_cast<std::size_t>(known));
            if (known < kPairInputs) std::memset(record.numbers + known, 0, kPairInputs - kCellInputs);
            std::memcpy(record.nibble_starts, nibble_starts + i * Record::kGroups, sizeof record.nibble_starts);
            std::memcpy(record.byte_starts, byte_starts + i * Record::kGroups, sizeof record.byte_starts);
            std::memcpy(record.scales, integers + i * Record::kGroups, sizeof record.scales);
            std::memcpy(record.sums, sum_integers + i * 2, sizeof record.sums);
            records += sizeof(Record);
        }
    }
}

void fill_records(const Activations& a, int row) {
    if constexpr (kIntegerScales) {
        a.group == kFineGroup ? fill_records_of<kFineGroup>(a, row) : fill_records_of<kCellInputs>(a, row);
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
