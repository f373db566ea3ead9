// How a step's tokens are cut into blocks of rows that threads take through the layers.
#pragma once

#include <vector>

#include "model.h"
#include "step.h"

namespace freehold {

// A block of fewer rows has too little arithmetic to hide the reading of its weights.
inline constexpr int kFewestBlockRows = 16;

// What a token costs in all layers, in multiply-adds of linear layers.
class TokenCost {
  public:
    explicit TokenCost(const Model& model);
    double at(int pos) const;

  private:
    // Layers that see as many positions.
    struct Seen {
        int window;
        double per_position;
    };

    double linear_ = 0.0;
    std::vector<Seen> seen_;
};

struct RowBlock {
    TokenSpan tokens;
    // Blocks from here on, up to this one, hold earlier tokens of the first one's row: their keys and values are
    // needed.
    int first_needed;
    bool alone;  // holds whole rows
    double cost;
};

// At most kBlockRows tokens each. A row that is cut is cut where tiles of positions begin, so that nobody reads a tile
// that another thread still writes to.
//
// One block more than threads where that is enough, so that a thread is there for what another that the system holds up
// doesn't get to; as many as threads if they would become too small and cost about the same.
void cut_rows(const Step& step, const TokenCost& cost, int num_threads, std::vector<RowBlock>& blocks);

// True if one block takes most of the time that all threads have, as one that holds a request of very many positions:
// its thread alone would attend to them.
bool is_lopsided(const std::vector<RowBlock>& blocks, int num_threads);

}  // namespace freehold
