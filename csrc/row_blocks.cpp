#include "row_blocks.h"

#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "scratch.h"

namespace freehold {
namespace {

// Multiply-adds of linear layers that take as long as one of attention, with int8 and bf16 activations; of single
// tokens most of that is the reading of keys and values.
constexpr double kAttentionCost = 4.0;
constexpr double kUneven = 1.05;   // the costliest block to the mean; beyond, one block more is better
constexpr double kLopsided = 1.5;  // times a thread's share of all
constexpr int kWholeTiles = 12;    // rows that the highest tiles fill, of four or of six

// Where a step's tokens may be cut, and what those before a token cost.
struct Tokens {
    std::vector<char> may_cut;  // before the token
    std::vector<double> cost_before;
    std::vector<int> row_begin;  // the first token of its row

    Tokens(const Step& step, const TokenCost& cost) {
        cost_before.push_back(0.0);
        for (const StepRow& row : step.rows) {
            for (int i = 0; i < row.num_tokens; ++i) {
                may_cut.push_back(i == 0 || (row.start_pos + i) % kTilePositions == 0);
                row_begin.push_back(row.first_token);
                cost_before.push_back(cost_before.back() + cost.at(row.start_pos + i));
            }
        }
    }
    int size() const { return static_cast<int>(may_cut.size()); }
    double cost_of(TokenSpan tokens) const { return before(tokens.end) - before(tokens.begin); }
    double before(int token) const { return cost_before[static_cast<std::size_t>(token)]; }
    bool can_end(int token) const { return token == size() || may_cut[static_cast<std::size_t>(token)] != 0; }
};

// The largest block from `begin` on, of whole tiles if that costs at most half of it.
int largest_end(const Tokens& tokens, int begin) {
    const int most = std::min(begin + kBlockRows, tokens.size());
    int found = 0;
    for (int end = most; end > begin && end >= most - kBlockRows / 2; --end) {
        if (!tokens.can_end(end)) continue;
        if ((end - begin) % kWholeTiles == 0) return end;
        found = std::max(found, end);
    }
    return found;
}

// Where a block from `begin` on ends whose tokens cost about as much as wanted. An odd row is a tile of its own, and
// nearly as expensive as two.
int end_near(const Tokens& tokens, int begin, double wanted) {
    int best = tokens.size();
    double least = 0.0;
    for (int end = begin + 1; end < tokens.size(); ++end) {
        if (!tokens.can_end(end)) continue;
        const double off = std::abs(tokens.before(end) - wanted) + (end - begin) % 2 * tokens.cost_of({end - 1, end});
        if (best == tokens.size() || off < least) {
            best = end;
            least = off;
        } else if (tokens.before(end) - wanted > least) {
            break;
        }
    }
    return best;
}

// Tokens [begin, size) in so many blocks of about equal cost, or fewer; none if one would be too large.
std::vector<int> cut_evenly(const Tokens& tokens, int begin, int num_blocks) {
    const double start = tokens.before(begin), all = tokens.before(tokens.size()) - start;
    std::vector<int> ends;
    for (int number = 1; number <= num_blocks && begin < tokens.size(); ++number) {
        const int end =
            number == num_blocks ? tokens.size() : end_near(tokens, begin, start + all * number / num_blocks);
        if (end - begin > kBlockRows) return {};
        ends.push_back(end);
        begin = end;
    }
    return ends;
}

double unevenness(const Tokens& tokens, int begin, const std::vector<int>& ends) {
    double most = 0.0;
    const double all = tokens.before(tokens.size()) - tokens.before(begin);
    for (const int end : ends) {
        most = std::max(most, tokens.cost_of({begin, end}));
        begin = end;
    }
    return most * static_cast<double>(ends.size()) / all;
}

// What is left after blocks of full size.
std::vector<int> cut_rest(const Tokens& tokens, int begin, int num_threads) {
    std::vector<int> ends = cut_evenly(tokens, begin, num_threads);
    const bool even = !ends.empty() && unevenness(tokens, begin, ends) <= kUneven;
    if (even && tokens.size() - begin < kFewestBlockRows * (num_threads + 1)) return ends;
    const std::vector<int> more = cut_evenly(tokens, begin, num_threads + 1);
    if (!more.empty()) return more;
    if (!ends.empty()) return ends;
    for (int end = begin; end < tokens.size(); ends.push_back(end)) end = largest_end(tokens, end);
    return ends;
}

}  // namespace

TokenCost::TokenCost(const Model& model) {
    for (const Layer& layer : model.layers) {
        for (const Matrix* m : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
            linear_ += static_cast<double>(m->num_outputs) * m->num_inputs;
        }
        const AttentionShape& a = layer.attention;
        const double per_position = kAttentionCost * 2.0 * a.query_size();
        const auto same = [&](const Seen& seen) { return seen.window == a.window; };
        const auto found = std::find_if(seen_.begin(), seen_.end(), same);
        if (found == seen_.end()) {
            seen_.push_back({a.window, per_position});
        } else {
            found->per_position += per_position;
        }
    }
}

double TokenCost::at(int pos) const {
    double cost = linear_;
    for (const Seen& seen : seen_) cost += seen.per_position * std::min(pos + 1, seen.window);
    return cost;
}

void cut_rows(const Step& step, const TokenCost& cost, int num_threads, std::vector<RowBlock>& blocks) {
    const Tokens tokens(step, cost);
    std::vector<int> ends;
    int begin = 0;
    while (tokens.size() - begin > kBlockRows * num_threads) {
        begin = largest_end(tokens, begin);
        ends.push_back(begin);
    }
    for (const int end : cut_rest(tokens, begin, num_threads)) ends.push_back(end);
    blocks.clear();
    begin = 0;
    for (const int end : ends) {
        int needed = static_cast<int>(blocks.size());
        while (needed > 0 && blocks[static_cast<std::size_t>(needed) - 1].tokens.end >
                                 tokens.row_begin[static_cast<std::size_t>(begin)]) {
            --needed;
        }
        const bool whole_end = end == tokens.size() || tokens.row_begin[static_cast<std::size_t>(end)] == end;
        const bool alone = whole_end && needed == static_cast<int>(blocks.size());
        blocks.push_back({{begin, end}, needed, alone, tokens.cost_of({begin, end})});
        begin = end;
    }
}

bool is_lopsided(const std::vector<RowBlock>& blocks, int num_threads) {
    double all = 0.0, most = 0.0;
    for (const RowBlock& block : blocks) {
        all += block.cost;
        most = std::max(most, block.cost);
    }
    return most * num_threads > kLopsided * all;
}

}  // namespace freehold
