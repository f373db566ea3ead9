// Sets of tokens that may be sampled: bit t of the whole is token t. Null allows all.
#pragma once

#include <algorithm>
#include <cstdint>

namespace freehold {

inline bool is_allowed(const std::uint32_t* allowed, int id) {
    return allowed == nullptr || ((allowed[id >> 5] >> (id & 31)) & 1u) != 0;
}

// Whether any of the first `count` tokens is. Bits beyond them mean nothing.
inline bool allows_any(const std::uint32_t* allowed, int count) {
    if (allowed == nullptr) return count > 0;
    const int whole = count / 32;
    if (std::any_of(allowed, allowed + whole, [](std::uint32_t word) { return word != 0; })) return true;
    return count % 32 != 0 && (allowed[whole] & ((1u << (count % 32)) - 1u)) != 0;
}

// The same set from a token on, which is a multiple of 32.
inline const std::uint32_t* allowed_from(const std::uint32_t* allowed, int id) {
    return allowed == nullptr ? nullptr : allowed + id / 32;
}

}  // namespace freehold
