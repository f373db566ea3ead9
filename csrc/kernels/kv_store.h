// Keys, values and queries on their way to attention: into blocks, rounded or quantized as these want it.
#pragma once

#include "kernels.h"
#include "kernels/bf16.h"
#include "kernels/integers.h"
#include "numeric.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr int kBf16Chunk = 256;  // elements of a head that are rounded at a time
constexpr float kHighestByte = 127.0f;

// 16 elements of a head, from `begin` on, as bytes above 128: what dot products with signed bytes want.
struct BiasedBytes {
    std::uint8_t at[kPanel];
    FREEHOLD_INLINE BiasedBytes(const float* head, int head_dim, int begin, float factor) {
        alignas(16) std::int8_t bytes[kPanel] = {};
        if (begin < head_dim) i_store_bytes(bytes, rounded(load_first(head + begin, head_dim - begin), f_set(factor)));
        for (int i = 0; i < kPanel; ++i) at[i] = static_cast<std::uint8_t>(bytes[i] ^ kByteBias);
    }
};

void store_int8_key(const KvView& kv, int pos, const float* key) {
    std::uint8_t* scales = kv.key_tile(pos);
    std::uint8_t* lane = scales + kScaleBytes + kQuad * (pos % kTilePositions);
    const IntegerScale by = head_scale(key, kv.head_dim, kHighestByte);
    std::memcpy(scales + 4 * (pos % kTilePositions), &by.scale, 4);
    for (int begin = 0; begin < kv.head_dim; begin += kPanel) {
        const BiasedBytes bytes(key, kv.head_dim, begin, by.factor);
        for (int i = 0; i < kPanel && begin + i < kv.head_dim; i += kQuad) {
            std::memcpy(lane + (begin + i) / kQuad * kLineBytes, bytes.at + i, kQuad);
        }
    }
}

void store_int8_value(const KvView& kv, int pos, const float* value) {
    const int in_tile = pos % kTilePositions;
    std::uint8_t* scales = kv.value_tile(pos);
    std::uint8_t* lane = scales + kScaleBytes + in_tile / kQuad * kQuad * kv.value_stride + in_tile % kQuad;
    const IntegerScale by = head_scale(value, kv.head_dim, kHighestByte);
    std::memcpy(scales + 4 * in_tile, &by.scale, 4);
    for (int begin = 0; begin < kv.value_stride; begin += kPanel) {
        const BiasedBytes bytes(value, kv.head_dim, begin, by.factor);
        for (int i = 0; i < kPanel; ++i) lane[(begin + i) * kQuad] = bytes.at[i];
    }
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

void store_key(const KvView& kv, int pos, const float* key) {
    if (kv.format == KvFormat::int8) return store_int8_key(kv, pos, key);
    std::uint8_t* lane = kv.key_tile(pos) + 4 * (pos % kTilePositions);
    if (kv.format == KvFormat::f32) {
        for (int e = 0; e < kv.head_dim; ++e) std::memcpy(lane + e * kLineBytes, key + e, 4);
        return;
    }
    alignas(64) std::uint16_t halves[kBf16Chunk];
    for (int begin = 0; begin < kv.head_dim; begin += kBf16Chunk) {
        const int count = kv.head_dim - begin < kBf16Chunk ? kv.head_dim - begin : kBf16Chunk;
        to_bf16(key + begin, count, 1.0f, halves);
        for (int e = 0; e < count; e += 2) std::memcpy(lane + (begin + e) / 2 * kLineBytes, halves + e, 4);
    }
}

void store_value(const KvView& kv, int pos, const float* value) {
    if (kv.format == KvFormat::int8) return store_int8_value(kv, pos, value);
    const int in_tile = pos % kTilePositions;
    std::uint8_t* rows = kv.value_tile(pos);
    if (kv.format == KvFormat::f32) {
        auto* row = reinterpret_cast<float*>(rows) + in_tile * kv.value_stride;
        for (int e = 0; e < kv.value_stride; ++e) row[e] = e < kv.head_dim ? value[e] : 0.0f;
        return;
    }
    auto* pairs = reinterpret_cast<std::uint16_t*>(rows) + (in_tile & ~1) * kv.value_stride + (in_tile & 1);
    alignas(64) std::uint16_t halves[kBf16Chunk];
    for (int begin = 0; begin < kv.value_stride; begin += kBf16Chunk) {
        const int end = kv.value_stride < begin + kBf16Chunk ? kv.value_stride : begin + kBf16Chunk;
        const int count = (kv.head_dim < end ? kv.head_dim : end) - begin;
        if (count > 0) to_bf16(value + begin, count, 1.0f, halves);
        for (int e = 0; begin + e < end; ++e) pairs[2 * (begin + e)] = e < count ? halves[e] : std::uint16_t{0};
    }
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
