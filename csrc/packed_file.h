// Packed weights that were kept in a file: the checksums that guard them, and their way back into the arena.
//
// freehold.files.packed writes and finds such files. They are read, not mapped: small pages would slow every later step
// down (docs/decisions/packed-weights.md), and what is checked here is what is used.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "threads/team.h"

namespace freehold {

inline constexpr std::size_t kChunkBytes = std::size_t{256} << 10;  // read and checked at a time

// 64 bits that change with any word of the data. Against decay and mix-ups, not against malice.
std::uint64_t checksum(const std::uint8_t* data, std::size_t num_bytes);

// One for each chunk.
std::vector<std::uint64_t> chunk_checksums(const std::uint8_t* data, std::size_t num_bytes);

// Fills the arena from an open file with all of the team's threads, checking every chunk. Returns what is wrong with
// the file; the arena's contents are worth nothing then.
std::optional<std::string> read_packed(int descriptor, off_t start, const std::vector<std::uint64_t>& checksums,
                                       std::uint8_t* arena, std::size_t num_bytes, Team& team);

// All that decides where a weight lies in packed bytes, as text: equal text, equal bytes.
std::string packing_description(bool integer_scales);

}  // namespace freehold
