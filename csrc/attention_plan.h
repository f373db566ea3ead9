// How the attention of one step is cut into work, for all layers that have the same attention shape.
#pragma once

#include <cstddef>
#include <vector>

#include "model.h"
#include "step.h"

namespace freehold {

// Consecutive inputs of one row that attend.
struct TokenRun {
    int row;
    int first_token;  // in the batch
    int num_tokens;
    int first_output;  // where the first one's result goes
};

// The whole rows of a step.
std::vector<TokenRun> whole_rows(const Step& step);
// The parts of such runs that lie within some tokens of the batch.
std::vector<TokenRun> runs_within(const std::vector<TokenRun>& rows, TokenSpan tokens);
// Only some inputs of the batch, given in ascending order; results stand in that order.
std::vector<TokenRun> runs_of(const Step& step, const std::vector<int>& tokens);

// Some of a run against one key/value head.
struct AttentionItem {
    int row;
    int first_token;  // in the batch
    int first_output;
    int num_tokens;
    int first_pos;
    int kv_head;
    int first_piece;
    int num_pieces;
    std::ptrdiff_t states_at;     // in the buffer of shared pieces, in floats
    std::ptrdiff_t piece_floats;  // of one piece's states
};

struct AttentionPlan {
    std::vector<AttentionItem> items;
    // Few items: threads share out single pieces, given as item and piece, and fold afterwards. All heads of a piece
    // stand together, as they do in memory.
    bool shared = false;
    struct Piece {
        int item;
        int piece;
    };
    std::vector<Piece> pieces;
};

// True if two layers can use one plan.
bool same_plan(const AttentionShape& a, const AttentionShape& b);

void plan_attention(const AttentionShape& shape, const Step& step, const std::vector<TokenRun>& runs, int num_threads,
                    AttentionPlan& plan);

}  // namespace freehold
