// Keys, values and queries on their way to attention: into blocks, rounded or quantized as these want it.
#pragma once

#include "kernels.h"
#include "kernels/bf16.h"
#include "kernels/integers.h"
#include "kernels/unrolled.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kFewKeys = 4;  // fewer are written word by word: to transpose them would take longer
constexpr float kHighestByte = 127.0f;

// 16 elements of a head from `begin` on, zeros behind it.
FREEHOLD_INLINE F elements(const HeadRows& heads, int token, int begin) {
    return load_first(heads.row(token) + begin, heads.head_dim - begin);
}

// Writes the run's lane of each of a key tile's lines, a word a position. words(token, begin) are a key's words from
// `begin` on, 16 of them.
template <class Words>
FREEHOLD_INLINE void store_key_words(std::uint8_t* lines, int num_words, int first, const HeadRows& heads,
                                     Words&& words) {
    const int end = first + heads.count;
    for (int begin = 0; begin < num_words; begin += kPanel, lines += kPanel * kLineBytes) {
        const int num_lines = num_words - begin < kPanel ? num_words - begin : kPanel;
        if (heads.count < kFewKeys) {
            for (int token = 0; token < heads.count; ++token) {
                alignas(64) std::int32_t key[kPanel];
                i_store(key, words(token, begin));
                std::uint8_t* lane = lines + 4 * (first + token);
                for (int i = 0; i < num_lines; ++i) std::memcpy(lane + i * kLineBytes, key + i, 4);
            }
            continue;
        }
        I rows[kTilePositions];
        unrolled<kTilePositions>([&](auto p) FREEHOLD_INLINE_LAMBDA {
            rows[p] = p >= first && p < end ? words(p - first, begin) : i_zero();
        });
        i_transpose(rows);
        const M lanes = lanes_between(first, end);
        unrolled<kTilePositions>([&](auto i) FREEHOLD_INLINE_LAMBDA {
            if (i < num_lines) i_store_lanes(lines + i * kLineBytes, rows[i], lanes);
        });
    }
}

// Writes values of which `Each` neighbouring positions share a word. part(token, begin) are 16 elements' parts of
// words, from element `begin` on, in the low bits of lanes.
template <int Each, class Part>
FREEHOLD_INLINE void store_value_words(std::uint8_t* rows, int stride, int first, const HeadRows& heads, Part&& part) {
    constexpr int kPartBytes = 4 / Each;
    constexpr unsigned kPart = (1u << kPartBytes) - 1;
    const int end = first + heads.count;
    for (int pos = first / Each * Each; pos < end; pos += Each) {
        unsigned bytes = 0;
        for (int i = 0; i < Each; ++i) {
            if (pos + i >= first && pos + i < end) bytes |= kPart << i * kPartBytes;
        }
        for (int begin = 0; begin < stride; begin += kPanel) {
            I word = i_zero();
            unrolled<Each>([&](auto i) FREEHOLD_INLINE_LAMBDA {
                if ((bytes >> i * kPartBytes & 1) == 0) return;
                const I moved = i_shift_left<i * kPartBytes * 8>(part(pos + i - first, begin));
                word = i_and_or(moved, i_set(-1), word);
            });
            i_store_bytes_of_lanes(rows + (pos / Each * stride + begin) * 4, word, bytes);
        }
    }
}

// Scales of the run's heads, stored where the tile has them.
struct ByteScales {
    float factor[kTilePositions];

    FREEHOLD_INLINE ByteScales(std::uint8_t* tile, int first_pos, const HeadRows& heads) {
        for (int token = 0; token < heads.count; ++token) {
            const IntegerScale by = head_scale(heads.row(token), heads.head_dim, kHighestByte);
            std::memcpy(tile + 4 * (first_pos % kTilePositions + token), &by.scale, 4);
            factor[token] = by.factor;
        }
    }
    FREEHOLD_INLINE I integers(const HeadRows& heads, int token, int begin) const {
        return rounded(elements(heads, token, begin), f_set(factor[token]));
    }
};

void store_int8_keys(const KvView& kv, int first_pos, const HeadRows& heads) {
    std::uint8_t* tile = kv.key_tile(first_pos);
    const ByteScales scales(tile, first_pos, heads);
    const int num_words = round_up(kv.head_dim, kQuad) / kQuad;
    store_key_words(tile + kScaleBytes, num_words, first_pos % kTilePositions, heads,
                    [&](int token, int begin) FREEHOLD_INLINE_LAMBDA {
                        alignas(64) std::int8_t quads[kPanel * kQuad];
                        for (int i = 0; i < kQuad; ++i) {
                            i_store_bytes(quads + i * kPanel,
                                          scales.integers(heads, token, begin * kQuad + i * kPanel));
                        }
                        return i_xor(i_load(quads), i_set(kByteBias * 0x01010101u));
                    });
}

void store_int8_values(const KvView& kv, int first_pos, const HeadRows& heads) {
    std::uint8_t* tile = kv.value_tile(first_pos);
    const ByteScales scales(tile, first_pos, heads);
    store_value_words<4>(tile + kScaleBytes, kv.value_stride, first_pos % kTilePositions, heads,
                         [&](int token, int begin) FREEHOLD_INLINE_LAMBDA {
                             return i_and(i_add(scales.integers(heads, token, begin), i_set(kByteBias)), i_set(255));
                         });
}

void quantize_query(const float* head, int head_dim, std::uint8_t* out) {
    const int padded = round_up(head_dim, kQuad);
    IntegerScale by = head_scale(head, head_dim, static_cast<float>(highest_query(head_dim)));
    auto* high = reinterpret_cast<std::int8_t*>(out + kQueryHeader);
    I total = i_zero();
    for (int begin = 0; begin < head_dim; begin += kPanel) {
        const I integers = rounded(load_first(head + begin, head_dim - begin), f_set(by.factor));
        std::int8_t bytes[2][kPanel];
        i_store_bytes(bytes[0], i_sub(i_shift_right<7>(i_add(integers, i_set(1 << 14))), i_set(1 << 7)));
        i_store_bytes(bytes[1], i_and(integers, i_set(127)));
        const auto count = static_cast<std::size_t>(padded - begin < kPanel ? padded - begin : kPanel);
        std::memcpy(high + begin, bytes[0], count);
        std::memcpy(high + padded + begin, bytes[1], count);
        total = i_add(total, integers);
    }
    const std::int32_t bias = kByteBias * i_sum(total);
    if (kBf16Dot) by.scale *= kBaseTwo;
    std::memcpy(out, &by.scale, 4);
    std::memcpy(out + 4, &bias, 4);
}

void halve_queries(const HeadRows& heads, std::uint16_t* out, int out_stride) {
    for (int i = 0; i < heads.count; ++i, out += out_stride) to_bf16(heads.row(i), heads.head_dim, kBaseTwo, out);
}

void store_keys(const KvView& kv, int first_pos, const HeadRows& heads) {
    switch (kv.format) {
        case KvFormat::f32:
            return store_key_words(kv.key_tile(first_pos), kv.head_dim, first_pos % kTilePositions, heads,
                                   [&](int token, int begin)
                                       FREEHOLD_INLINE_LAMBDA { return f_bits(elements(heads, token, begin)); });
        case KvFormat::bf16:
            return store_key_words(kv.key_tile(first_pos), round_up(kv.head_dim, 2) / 2, first_pos % kTilePositions,
                                   heads, [&](int token, int begin) FREEHOLD_INLINE_LAMBDA {
                                       return i_bf16_pairs(elements(heads, token, 2 * begin),
                                                           elements(heads, token, 2 * begin + kPanel));
                                   });
        case KvFormat::int8:
            return store_int8_keys(kv, first_pos, heads);
    }
}

void store_values(const KvView& kv, int first_pos, const HeadRows& heads) {
    switch (kv.format) {
        case KvFormat::f32:
            return store_value_words<1>(kv.value_tile(first_pos), kv.value_stride, first_pos % kTilePositions, heads,
                                        [&](int token, int begin)
                                            FREEHOLD_INLINE_LAMBDA { return f_bits(elements(heads, token, begin)); });
        case KvFormat::bf16:
            return store_value_words<2>(kv.value_tile(first_pos), kv.value_stride, first_pos % kTilePositions, heads,
                                        [&](int token, int begin)
                                            FREEHOLD_INLINE_LAMBDA { return i_bf16(elements(heads, token, begin)); });
        case KvFormat::int8:
            return store_int8_values(kv, first_pos, heads);
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
