// Gathers an ISA's kernels into its table. Included last by each ISA's kernels.cpp.
#pragma once

#include "kernels/attention.h"
#include "kernels/digest.h"
#include "kernels/kv_store.h"
#include "kernels/noise_candidates.h"
#include "kernels/probabilities.h"
#include "kernels/rowwise.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr KernelTable kTable = {
    .isa = kIsaName,
    .bf16_dot = kBf16Dot,
    .linear = linear,
    .rms_norm = rms_norm,
    .quantize = quantize,
    .silu_mul = silu_mul,
    .head_norm = head_norm,
    .rotate = rotate,
    .quantize_query = quantize_query,
    .halve_query = halve_query,
    .store_key = store_key,
    .store_value = store_value,
    .attend_piece = attend_piece,
    .fold = fold,
    .finish = finish,
    .scan = scan,
    .digest = digest,
    .noise_candidates = noise_candidates,
    .exp_sum = exp_sum,
    .rank = rank,
    .above = above,
    .scan_allowed = scan_allowed,
};

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
