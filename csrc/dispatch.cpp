#include "dispatch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace freehold {
namespace {

#if defined(__x86_64__)
// The builtin also asks whether the operating system saves the wide registers.
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
bool has_avx512bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

const KernelTable& kernels_of(const std::string& isa) {
#if defined(__x86_64__)
    if (isa == "avx512bf16") return avx512bf16_kernels();
    if (isa == "avx512") return avx512_kernels();
    if (isa == "avx2") return avx2_kernels();
#endif
    (void)isa;
    return generic_kernels();
}

}  // namespace

std::vector<std::string> available_isas() {
    std::vector<std::string> isas;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (has_avx512bf16()) isas.emplace_back("avx512bf16");
    if (has_avx512()) isas.emplace_back("avx512");
    if (has_avx2()) isas.emplace_back("avx2");
#endif
    isas.emplace_back("generic");
    return isas;
}

void refuse_coarse_activations(const char* layout) {
    std::fprintf(stderr, "freehold: weights of layout %s need int8 activations with a scale for each %d inputs\n",
                 layout, kFineGroup);
    std::abort();
}

void refuse_integer_scales(const char* layout) {
    std::fprintf(stderr,
                 "freehold: weights of layout %s need int8 activations and kernels that this instruction set lacks\n",
                 layout);
    std::abort();
}

const KernelTable& choose_kernels(const std::string& highest) {
    const std::vector<std::string> isas = available_isas();
    if (highest.empty()) return kernels_of(isas.front());
    if (std::find(isas.begin(), isas.end(), highest) == isas.end()) {
        std::string known;
        for (const std::string& isa : isas) known += (known.empty() ? "" : ", ") + isa;
        throw std::invalid_argument("instruction set '" + highest + "' is not available here (available: " + known +
                                    ")");
    }
    return kernels_of(highest);
}

}  // namespace freehold
