// The compiler's portable vectors in the width that every processor of the architecture has.
#define FREEHOLD_ISA generic
#include <cstring>

#include "limit_chains.h"
#include "limit_kernels.h"

namespace freehold {
namespace generic {
namespace {

typedef float F __attribute__((vector_size(16)));
typedef std::int32_t I __attribute__((vector_size(16)));

constexpr int kChains = 14;  // two registers of sixteen are left for the factors

// A multiplication and an addition, each rounded, as in the portable kernels.
void multiply_add(std::int64_t num_rounds) {
    F factor = F{} + 0.5f;
    F term = F{} + 0.5f;
    hide(factor);
    hide(term);
    run_chains<kChains>(F{} + 1.0f, num_rounds, [&](F sum) FREEHOLD_INLINE_LAMBDA { return sum * factor + term; });
}

FREEHOLD_INLINE I load(const std::uint8_t* p) {
    I line;
    std::memcpy(&line, p, sizeof line);
    return line;
}

void read_one(const std::uint8_t* data, std::size_t num_bytes) {
    read_streams<I, 1, 0>(data, num_bytes, load, [](I a, I b) FREEHOLD_INLINE_LAMBDA { return a ^ b; });
}
void read_two(const std::uint8_t* data, std::size_t num_bytes) {
    read_streams<I, 2, 4096>(data, num_bytes, load, [](I a, I b) FREEHOLD_INLINE_LAMBDA { return a ^ b; });
}

constexpr LimitKernels kLimits = {.num_compute = 1,
                                  .compute = {{"float32", 2 * 4, 2, kChains, multiply_add}},
                                  .num_reads = 2,
                                  .reads = {read_one, read_two}};

}  // namespace
}  // namespace generic

const LimitKernels& generic_limits() { return generic::kLimits; }

}  // namespace freehold
