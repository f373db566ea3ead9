// Gathers an ISA's kernels into its table. Included last by each ISA's kernels.cpp.
#pragma once

#include "kernels/attention.h"
#include "kernels/digest.h"
#include "kernels/head_turn.h"
#include "kernels/kv_store.h"
#include "kernels/noise_candidates.h"
#include "kernels/probabilities.h"
#include "kernels/records.h"
#include "kernels/rowwise.h"

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr KernelTable kTable = {
    .isa = kIsaName,
    .bf16_dot = kBf16Dot,
    .integer_scales = kIntegerScales,
    .linear = linear,
    .rms_norm = rms_norm,
    .quantize = quantize,
    .fill_records = fill_records,
    .silu_mul = silu_mul,
    .turn = turn,
    .quantize_query = quantize_query,
    .halve_queries = halve_queries,
    .store_keys = store_keys,
    .store_values = store_values,
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
