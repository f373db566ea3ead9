#include "sampler.h"

#include <algorithm>
#include <cstddef>

#include "allowed.h"
#include "likeliest.h"
#include "mathx.h"
#include "noise.h"

namespace freehold {
namespace {

constexpr double kSmallestMinP = 0x1p-1022;
// Masses below 2^-53 leave a running sum of at least 1 as it is, to the bit: no need to sort or add them.
constexpr double kLowestMassLog = -37.0;
// Up to so many, the likeliest are picked out instead of sorting all.
constexpr std::int64_t kFewestSorted = 64;

class Scaling {
  public:
    Scaling(float highest, double temperature) : highest_(highest), temperature_(temperature) {}
    double operator()(float logit) const { return (static_cast<double>(logit) - highest_) / temperature_; }

  private:
    double highest_;
    double temperature_;
};

// Ascending keys are descending logits, then ascending ids.
std::uint64_t order_key(float logit, int id) {
    const auto bits = bit_cast<std::uint32_t>(logit == 0.0f ? 0.0f : logit);
    const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<std::uint64_t>(~ascending) << 32 | static_cast<std::uint32_t>(id);
}

int key_id(std::uint64_t key) { return static_cast<int>(key & 0xffffffffu); }

// Keys arrive in ascending order of ids, so a stable radix sort of the upper words is enough.
void radix_sort(std::vector<std::uint64_t>& keys, std::vector<std::uint64_t>& spare, std::size_t count) {
    constexpr int kBits = 11;
    constexpr std::size_t kBuckets = std::size_t{1} << kBits;
    for (int shift = 32; shift < 64; shift += kBits) {
        std::size_t starts[kBuckets + 1] = {};
        for (std::size_t i = 0; i < count; ++i) ++starts[((keys[i] >> shift) & (kBuckets - 1)) + 1];
        for (std::size_t b = 0; b < kBuckets; ++b) starts[b + 1] += starts[b];
        for (std::size_t i = 0; i < count; ++i) spare[starts[(keys[i] >> shift) & (kBuckets - 1)]++] = keys[i];
        keys.swap(spare);
    }
}

// How many of the sorted candidates top_p keeps.
std::size_t nucleus(const float* logits, const Scaling& scaled, const std::uint64_t* keys, std::size_t count,
                    double top_p, std::vector<std::uint64_t>& spare) {
    double mass = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
        mass = i == 0 ? exp_fixed(scaled(logits[key_id(keys[0])])) : mass + exp_fixed(scaled(logits[key_id(keys[i])]));
        spare[i] = bit_cast<std::uint64_t>(mass);
    }
    const double threshold = top_p * mass;
    // Masses never decrease, and positive doubles compare as their bits do.
    const auto end = spare.begin() + static_cast<std::ptrdiff_t>(count);
    const auto first = std::lower_bound(spare.begin(), end, bit_cast<std::uint64_t>(threshold));
    return std::min(count, static_cast<std::size_t>(first - spare.begin()) + 1);
}

struct Best {
    double score;
    int id;
    void offer(double other_score, int other_id) {
        if (other_score > score || (other_score == score && other_id < id)) {
            score = other_score;
            id = other_id;
        }
    }
};

// All tokens compete, except those under `lowest_scaled`. Noise is drawn as integers for every token; the logarithms
// are taken only where the cheap upper bound on the noise could still win.
int sample_unsorted(const KernelTable& kernels, const float* logits, int vocab_size, const LogitScan& scan,
                    const SamplingRules& rules, std::uint32_t pos, const std::uint32_t* allowed,
                    SamplerScratch& scratch) {
    const Scaling scaled(scan.highest, rules.temperature);
    const NoiseKey key{rules.seed, pos, rules.choice};
    const double lowest = rules.min_p > 0.0 ? log_fixed(std::max(rules.min_p, kSmallestMinP)) : 0.0;
    Best best{scaled(scan.highest) + gumbel(key, static_cast<std::uint32_t>(scan.highest_id)), scan.highest_id};
    constexpr int kChunk = 2048;
    for (int begin = 0; begin < vocab_size; begin += kChunk) {
        if (!allows_any(allowed_from(allowed, begin), std::min(kChunk, vocab_size - begin))) continue;
        const NoiseCall call{logits,
                             begin,
                             std::min(begin + kChunk, vocab_size),
                             scan.highest,
                             static_cast<float>(1.0 / rules.temperature),
                             static_cast<float>(best.score),
                             key};
        const int count = kernels.noise_candidates(call, scratch.ids.data());
        for (int i = 0; i < count; ++i) {
            const int id = scratch.ids[static_cast<std::size_t>(i)];
            const double s = scaled(logits[id]);
            if (!is_allowed(allowed, id) || (rules.min_p > 0.0 && !(s >= lowest))) continue;
            best.offer(s + gumbel(key, static_cast<std::uint32_t>(id)), id);
        }
    }
    return best.id;
}

// The best of some tokens with their noise.
int draw(const float* logits, const Scaling& scaled, const NoiseKey& key, const std::uint64_t* keys,
         std::size_t count) {
    Best best{-__builtin_inf(), key_id(keys[0])};
    for (std::size_t i = 0; i < count; ++i) {
        const int id = key_id(keys[i]);
        best.offer(scaled(logits[id]) + gumbel(key, static_cast<std::uint32_t>(id)), id);
    }
    return best.id;
}

int sample_sorted(const KernelTable& kernels, const float* logits, int vocab_size, const LogitScan& scan,
                  const SamplingRules& rules, std::uint32_t pos, const std::uint32_t* allowed,
                  SamplerScratch& scratch) {
    const Scaling scaled(scan.highest, rules.temperature);
    const NoiseKey key{rules.seed, pos, rules.choice};
    const bool has_top_p = rules.top_p < 1.0;
    const double lowest = rules.min_p > 0.0 ? log_fixed(std::max(rules.min_p, kSmallestMinP)) : 0.0;
    std::vector<std::uint64_t>& keys = scratch.keys;
    std::size_t count = 0;
    const auto consider = [&](int id) {
        const double s = scaled(logits[id]);
        if ((rules.min_p > 0.0 && !(s >= lowest)) || (has_top_p && s < kLowestMassLog)) return;
        keys[count++] = order_key(logits[id], id);
    };
    const auto begin = keys.begin();
    if (rules.top_k > 0 && rules.top_k <= kFewestSorted) {
        // What min_p drops is less likely than what it keeps, so the order of the two filters doesn't matter.
        find_likeliest(kernels, logits, vocab_size, allowed, static_cast<int>(rules.top_k), scratch.ids,
                       scratch.likeliest);
        for (const std::int32_t id : scratch.likeliest) consider(id);
        if (has_top_p) count = nucleus(logits, scaled, keys.data(), count, rules.top_p, scratch.spare);
        return draw(logits, scaled, key, keys.data(), count);
    }
    for (int id = 0; id < vocab_size; ++id) {
        if (is_allowed(allowed, id)) consider(id);
    }
    const bool cut = rules.top_k > 0 && static_cast<std::size_t>(rules.top_k) < count;
    if (cut) {
        const auto middle = begin + static_cast<std::ptrdiff_t>(rules.top_k);
        std::nth_element(begin, middle, begin + static_cast<std::ptrdiff_t>(count));
        count = static_cast<std::size_t>(rules.top_k);
    }
    if (has_top_p) {
        if (cut) {
            std::sort(begin, begin + static_cast<std::ptrdiff_t>(count));
        } else {
            radix_sort(keys, scratch.spare, count);
        }
        count = nucleus(logits, scaled, keys.data(), count, rules.top_p, scratch.spare);
    }
    return draw(logits, scaled, key, keys.data(), count);
}

// The allowed tokens but those that end the answer; `allowed` itself if there are no others.
const std::uint32_t* without_stops(const std::uint32_t* allowed, int vocab_size,
                                   const std::vector<std::int32_t>& stop_ids, std::vector<std::uint32_t>& mask) {
    if (allowed == nullptr) {
        std::fill(mask.begin(), mask.end(), 0xffffffffu);
    } else {
        std::copy_n(allowed, mask.size(), mask.begin());
    }
    for (const std::int32_t id : stop_ids) {
        if (id >= 0 && id < vocab_size) mask[static_cast<std::size_t>(id / 32)] &= ~(1u << (id % 32));
    }
    return allows_any(mask.data(), vocab_size) ? mask.data() : allowed;
}

}  // namespace

SamplerScratch::SamplerScratch(int vocab_size)
    : keys(static_cast<std::size_t>(vocab_size)),
      spare(static_cast<std::size_t>(vocab_size)),
      ids(static_cast<std::size_t>(vocab_size)),
      mask(static_cast<std::size_t>(vocab_size + 31) / 32),
      adjuster(vocab_size) {}

std::size_t SamplerScratch::num_bytes() const {
    return keys.size() * (2 * sizeof(std::uint64_t) + 2 * sizeof(std::int32_t)) + mask.size() * sizeof(std::uint32_t);
}

std::int32_t sample(const KernelTable& kernels, float* logits, int vocab_size, const LogitScan& raw,
                    const SamplingRules& rules, const SamplePlace& place, SamplerScratch& scratch) {
    const std::uint32_t* allowed = place.allowed;
    if (place.pos < rules.min_end_pos && !rules.stop_ids.empty()) {
        allowed = without_stops(allowed, vocab_size, rules.stop_ids, scratch.mask);
    }
    const bool changes = rules.changes_logits();
    if (changes) scratch.adjuster.apply(logits, rules, place.context);
    LogitScan scan = raw;
    if (allowed != nullptr) {
        scan = kernels.scan_allowed(logits, vocab_size, allowed);
    } else if (changes) {
        scan = kernels.scan(logits, vocab_size);
    }
    std::int32_t id = scan.highest_id;
    if (rules.temperature != 0.0) {
        const bool sorts = rules.top_k > 0 || rules.top_p < 1.0;
        id = sorts ? sample_sorted(kernels, logits, vocab_size, scan, rules, place.pos, allowed, scratch)
                   : sample_unsorted(kernels, logits, vocab_size, scan, rules, place.pos, allowed, scratch);
    }
    if (changes) scratch.adjuster.undo(logits);
    return id;
}

}  // namespace freehold
