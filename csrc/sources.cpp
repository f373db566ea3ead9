#include "sources.h"

#include <cstring>

namespace freehold {
namespace {

std::uint16_t u16_at(const std::uint8_t* p) {
    std::uint16_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// Files subtract minima, layouts add them.
std::uint16_t negated(std::uint16_t half) { return half ^ 0x8000; }

void decode_q4(const std::uint8_t* nibbles, Group& g) {
    for (int i = 0; i < 16; ++i) {
        g.stored[i] = nibbles[i] & 15;
        g.stored[i + 16] = nibbles[i] >> 4;
    }
}

void decode_q4_0(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index * 18;
    g.scale_half = u16_at(block);
    decode_q4(block + 2, g);
}

void decode_q4_1(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index * 20;
    g.scale_half = u16_at(block);
    g.minimum_half = u16_at(block + 2);
    decode_q4(block + 4, g);
}

void add_fifth_bits(const std::uint8_t* high, Group& g) {
    for (int i = 0; i < 32; ++i) g.stored[i] |= static_cast<std::uint8_t>(((high[i >> 3] >> (i & 7)) & 1) << 4);
}

void decode_q5_0(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index * 22;
    g.scale_half = u16_at(block);
    decode_q4(block + 6, g);
    add_fifth_bits(block + 2, g);
}

void decode_q5_1(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index * 24;
    g.scale_half = u16_at(block);
    g.minimum_half = u16_at(block + 2);
    decode_q4(block + 8, g);
    add_fifth_bits(block + 4, g);
}

void decode_q8_0(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index * 34;
    g.scale_half = u16_at(block);
    for (int i = 0; i < 32; ++i) g.stored[i] = block[2 + i] ^ 0x80;
}

void decode_iq4_nl(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index * 18;
    g.scale_half = u16_at(block);
    decode_q4(block + 2, g);
}

// Super-blocks of 256 with two-level scales.

void decode_iq4_xs(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index / 8 * 136;
    const int sub = index % 8;
    const int low = (block[4 + sub / 2] >> (sub % 2 * 4)) & 15;
    const int high = (u16_at(block + 2) >> (2 * sub)) & 3;
    g.scale_half = u16_at(block);
    g.scale = static_cast<std::int8_t>((low | high << 4) - 32);
    decode_q4(block + 8 + sub * 16, g);
}

void decode_q2_k(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index / 16 * 84;
    const int sub = index % 16;
    g.scale_half = u16_at(block + 80);
    g.minimum_half = negated(u16_at(block + 82));
    g.scale = static_cast<std::int8_t>(block[sub] & 15);
    g.minimum = static_cast<std::int8_t>(block[sub] >> 4);
    const std::uint8_t* quants = block + 16 + sub / 8 * 32 + sub % 2 * 16;
    for (int i = 0; i < 16; ++i) g.stored[i] = (quants[i] >> (sub / 2 % 4 * 2)) & 3;
}

void decode_q3_k(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index / 16 * 110;
    const int sub = index % 16;
    const int scale_low = (block[96 + sub % 8] >> (sub / 8 * 4)) & 15;
    const int scale_high = (block[104 + sub % 4] >> (sub / 4 * 2)) & 3;
    g.scale_half = u16_at(block + 108);
    g.scale = static_cast<std::int8_t>((scale_low | scale_high << 4) - 32);
    const std::uint8_t* high = block + sub % 2 * 16;
    const std::uint8_t* quants = block + 32 + sub / 8 * 32 + sub % 2 * 16;
    for (int i = 0; i < 16; ++i) {
        const int low = (quants[i] >> (sub / 2 % 4 * 2)) & 3;
        g.stored[i] = static_cast<std::uint8_t>(low | ((high[i] >> (sub / 2)) & 1) << 2);
    }
}

// The scales of Q4_K and Q5_K: 6-bit integers in 12 bytes.
void decode_k_scales(const std::uint8_t* block, int sub, Group& g) {
    const std::uint8_t* scales = block + 4;
    g.scale_half = u16_at(block);
    g.minimum_half = negated(u16_at(block + 2));
    if (sub < 4) {
        g.scale = static_cast<std::int8_t>(scales[sub] & 63);
        g.minimum = static_cast<std::int8_t>(scales[sub + 4] & 63);
    } else {
        g.scale = static_cast<std::int8_t>((scales[sub + 4] & 15) | scales[sub - 4] >> 6 << 4);
        g.minimum = static_cast<std::int8_t>(scales[sub + 4] >> 4 | scales[sub] >> 6 << 4);
    }
}

void decode_q4_k(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index / 8 * 144;
    const int sub = index % 8;
    decode_k_scales(block, sub, g);
    const std::uint8_t* quants = block + 16 + sub / 2 * 32;
    for (int i = 0; i < 32; ++i) g.stored[i] = (quants[i] >> (sub % 2 * 4)) & 15;
}

void decode_q5_k(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index / 8 * 176;
    const int sub = index % 8;
    decode_k_scales(block, sub, g);
    const std::uint8_t* high = block + 16;
    const std::uint8_t* quants = block + 48 + sub / 2 * 32;
    for (int i = 0; i < 32; ++i) {
        const int low = (quants[i] >> (sub % 2 * 4)) & 15;
        g.stored[i] = static_cast<std::uint8_t>(low | ((high[i] >> sub) & 1) << 4);
    }
}

void decode_q6_k(const std::uint8_t* row, int index, Group& g) {
    const std::uint8_t* block = row + index / 16 * 210;
    const int sub = index % 16;
    const int half = sub / 8;         // 128 elements each
    const int quarter = sub % 8 / 2;  // 32 elements each
    const int at = sub % 2 * 16;
    g.scale_half = u16_at(block + 208);
    g.scale = static_cast<std::int8_t>(block[192 + sub]);
    const std::uint8_t* low = block + half * 64 + quarter % 2 * 32 + at;
    const std::uint8_t* high = block + 128 + half * 32 + at;
    for (int i = 0; i < 16; ++i) {
        const int nibble = (low[i] >> (quarter / 2 * 4)) & 15;
        g.stored[i] = static_cast<std::uint8_t>(nibble | ((high[i] >> (quarter * 2)) & 3) << 4);
    }
}

}  // namespace

GroupDecoder group_decoder(SourceType type) {
    switch (type) {
        case SourceType::Q4_0:
            return decode_q4_0;
        case SourceType::Q4_1:
            return decode_q4_1;
        case SourceType::Q5_0:
            return decode_q5_0;
        case SourceType::Q5_1:
            return decode_q5_1;
        case SourceType::Q8_0:
            return decode_q8_0;
        case SourceType::Q2_K:
            return decode_q2_k;
        case SourceType::Q3_K:
            return decode_q3_k;
        case SourceType::Q4_K:
            return decode_q4_k;
        case SourceType::Q5_K:
            return decode_q5_k;
        case SourceType::Q6_K:
            return decode_q6_k;
        case SourceType::IQ4_NL:
            return decode_iq4_nl;
        case SourceType::IQ4_XS:
            return decode_iq4_xs;
        case SourceType::F32:
        case SourceType::F16:
        case SourceType::BF16:
            break;
    }
    return nullptr;
}

}  // namespace freehold
