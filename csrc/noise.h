// Gumbel noise as a pure function of (seed, choice, position, token id): the twin of `freehold.sample.noise`.
// Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
#pragma once

#include <cstdint>

#include "mathx.h"

namespace freehold {

inline constexpr std::uint32_t kPhiloxMultipliers[2] = {0xd2511f53u, 0xcd9e8d57u};
inline constexpr std::uint32_t kPhiloxKeySteps[2] = {0x9e3779b9u, 0xbb67ae85u};
inline constexpr int kPhiloxRounds = 10;

struct NoiseKey {
    std::uint64_t seed;
    std::uint32_t pos;
    std::uint32_t choice;
};

// Uniform in (0, 1): 52 bits and a half.
inline double uniform(const NoiseKey& key, std::uint32_t token_id) {
    std::uint32_t c0 = token_id;
    std::uint32_t c1 = key.pos;
    std::uint32_t c2 = key.choice;
    std::uint32_t c3 = 0;
    auto key0 = static_cast<std::uint32_t>(key.seed);
    auto key1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultipliers[0]} * c0;
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultipliers[1]} * c2;
        c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
        c1 = static_cast<std::uint32_t>(product1);
        c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
        c3 = static_cast<std::uint32_t>(product0);
        key0 += kPhiloxKeySteps[0];
        key1 += kPhiloxKeySteps[1];
    }
    const std::uint64_t mantissa = std::uint64_t{c0} << 20 | c1 >> 12;
    return (static_cast<double>(mantissa) + 0.5) * 0x1p-52;
}

inline double gumbel(const NoiseKey& key, std::uint32_t token_id) {
    return -log_fixed(-log_fixed(uniform(key, token_id)));
}

}  // namespace freehold
