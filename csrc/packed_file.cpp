#include "packed_file.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "layouts.h"
#include "sources.h"

namespace freehold {
namespace {

// To be raised whenever packing gives other bytes and the tables of layouts and sources don't show it.
constexpr int kPackingVersion = 1;

constexpr int kLanes = 8;
constexpr std::size_t kRound = kLanes * sizeof(std::uint64_t);
constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15u;

// One to one in either argument, so that no change of one word goes unnoticed. The product carries low bits up, the
// shift high bits down.
std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) {
    const std::uint64_t product = (lane ^ word) * kFactor;
    return product ^ (product >> 29);
}

void mix_round(std::uint64_t (&lanes)[kLanes], const std::uint8_t* data) {
    for (int i = 0; i < kLanes; ++i) {
        std::uint64_t word;
        std::memcpy(&word, data + static_cast<std::size_t>(i) * sizeof word, sizeof word);
        lanes[i] = mixed(lanes[i], word);
    }
}

// An empty text if all went well.
std::string read_chunk(int descriptor, off_t start, std::uint8_t* to, std::size_t num_bytes) {
    for (std::size_t done = 0; done < num_bytes;) {
        const ssize_t read = pread(descriptor, to + done, num_bytes - done, start + static_cast<off_t>(done));
        if (read > 0) {
            done += static_cast<std::size_t>(read);
        } else if (read == 0) {
            return "it is truncated";
        } else if (errno != EINTR) {
            return std::string("it can't be read: ") + std::strerror(errno);
        }
    }
    return {};
}

}  // namespace

std::uint64_t checksum(const std::uint8_t* data, std::size_t num_bytes) {
    std::uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
    std::size_t at = 0;
    for (; at + kRound <= num_bytes; at += kRound) mix_round(lanes, data + at);
    if (at < num_bytes) {
        std::uint8_t rest[kRound] = {};
        std::memcpy(rest, data + at, num_bytes - at);
        mix_round(lanes, rest);
    }
    std::uint64_t whole = num_bytes;
    for (const std::uint64_t lane : lanes) whole = mixed(whole, lane);
    return whole;
}

std::vector<std::uint64_t> chunk_checksums(const std::uint8_t* data, std::size_t num_bytes) {
    std::vector<std::uint64_t> all;
    for (std::size_t at = 0; at < num_bytes; at += kChunkBytes) {
        all.push_back(checksum(data + at, std::min(kChunkBytes, num_bytes - at)));
    }
    return all;
}

std::optional<std::string> read_packed(int descriptor, off_t start, const std::vector<std::uint64_t>& checksums,
                                       std::uint8_t* arena, std::size_t num_bytes, Team& team) {
    if (checksums.size() != (num_bytes + kChunkBytes - 1) / kChunkBytes) return "it has another number of checksums";
    std::mutex failing;
    std::optional<std::string> failure;
    std::atomic<bool> has_failed{false};
    team.run([&](int) {
        team.for_each(static_cast<int>(checksums.size()), [&](int chunk) {
            if (has_failed.load(std::memory_order_relaxed)) return;
            const std::size_t at = static_cast<std::size_t>(chunk) * kChunkBytes;
            const std::size_t size = std::min(kChunkBytes, num_bytes - at);
            std::string wrong = read_chunk(descriptor, start + static_cast<off_t>(at), arena + at, size);
            if (wrong.empty() && checksum(arena + at, size) != checksums[static_cast<std::size_t>(chunk)]) {
                wrong = "chunk " + std::to_string(chunk) + " is damaged";
            }
            if (wrong.empty()) return;
            const std::lock_guard lock(failing);
            if (!failure) failure = wrong;
            has_failed.store(true, std::memory_order_relaxed);
        });
    });
    return failure;
}

std::string packing_description(bool integer_scales) {
    std::string text = "version " + std::to_string(kPackingVersion);
    text += std::endian::native == std::endian::little ? ", little endian" : ", big endian";
    text += ", strips of " + std::to_string(kStrip) + ", panels of " + std::to_string(kPanel) + ", chunks of " +
            std::to_string(kChunkBytes);
    for (const Layout& l : kLayouts) {
        text += std::string("\n") + l.name;
        for (const int part : {l.low_bits, l.high_bits, l.group, static_cast<int>(l.scales),
                               static_cast<int>(l.minimum), l.offset, static_cast<int>(l.table), l.block_bytes()}) {
            text += ' ' + std::to_string(part);
        }
    }
    for (const Source& s : kSources) text += std::string("\n") + s.name + ' ' + layout_of(s.layout).name;
    for (const int value : kValueTable) text += '\n' + std::to_string(value);
    if (integer_scales) text += "\ninteger scales where there is a layout with them";
    return text;
}

}  // namespace freehold
