#include "likeliest.h"

#include <algorithm>

#include "allowed.h"

namespace freehold {
namespace {

constexpr int kChunk = 2048;      // ids looked at before the threshold is raised
constexpr int kMaxInserted = 64;  // longer lists are selected and sorted at once

}  // namespace

void find_likeliest(const KernelTable& kernels, const float* logits, int vocab_size, const std::uint32_t* allowed,
                    int count, std::vector<std::int32_t>& spare, std::vector<std::int32_t>& likeliest) {
    const auto likelier = [&](std::int32_t a, std::int32_t b) {
        return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
    };
    likeliest.clear();
    if (count > kMaxInserted) {
        for (std::int32_t id = 0; id < vocab_size; ++id) {
            if (is_allowed(allowed, id)) likeliest.push_back(id);
        }
        const auto end = std::min(likeliest.size(), static_cast<std::size_t>(count));
        std::partial_sort(likeliest.begin(), likeliest.begin() + static_cast<std::ptrdiff_t>(end), likeliest.end(),
                          likelier);
        likeliest.resize(end);
        return;
    }
    const auto wanted = static_cast<std::size_t>(count);
    float threshold = -__builtin_inff();
    for (int first = 0; first < vocab_size; first += kChunk) {
        const int end = std::min(first + kChunk, vocab_size);
        if (!allows_any(allowed_from(allowed, first), end - first)) continue;
        const int found = kernels.above(logits, first, end, threshold, spare.data());
        for (int i = 0; i < found; ++i) {
            const std::int32_t id = spare[static_cast<std::size_t>(i)];
            if (!is_allowed(allowed, id)) continue;
            if (likeliest.size() == wanted) {
                if (!(logits[id] > logits[likeliest.back()])) continue;  // ids ascend
                likeliest.pop_back();
            }
            likeliest.insert(std::upper_bound(likeliest.begin(), likeliest.end(), id, likelier), id);
        }
        if (likeliest.size() == wanted) threshold = logits[likeliest.back()];
    }
}

}  // namespace freehold
