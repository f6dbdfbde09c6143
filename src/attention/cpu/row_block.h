// How attention's work is cut: into blocks of rows that share a KV head, so that a key or value is widened
// once for all of them. Rows of one (sequence, KV head) are numbered query-major: row r is query r / group,
// head r % group of the KV head's group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/cpu/attention_problem.h"

namespace kv8::attention::cpu {

struct RowBlock {
  const AttentionProblem* problem = nullptr;
  const SequenceChunk* sequence = nullptr;
  int kv_head = 0;
  int64_t first_row = 0;
  int rows = 0;
  int64_t first_key = 0;  // the keys that any of the rows sees: [first_key, end_key)
  int64_t end_key = 0;

  int group() const { return problem->q_heads / problem->cache.kv_heads; }
  int64_t query(int row) const { return (first_row + row) / group(); }
  int head(int row) const { return kv_head * group() + static_cast<int>((first_row + row) % group()); }
  int64_t position(int row) const { return sequence->first_position + query(row); }
  // Row `row` sees the keys [visible_from(row), position(row)].
  int64_t visible_from(int row) const {
    return problem->window > 0 ? std::max<int64_t>(0, position(row) - problem->window + 1) : 0;
  }
  const float* q(int row) const {
    return problem->q + (sequence->query_begin + query(row)) * problem->q_stride +
           static_cast<int64_t>(head(row)) * problem->cache.head_dim;
  }
  float* out(int row) const {
    return problem->out + (sequence->query_begin + query(row)) * problem->out_stride +
           static_cast<int64_t>(head(row)) * problem->cache.head_dim;
  }

  // Tiles are the keys of one page. [first_tile, end_tile).
  int64_t first_tile() const { return first_key / kPageTokens; }
  int64_t end_tile() const { return (end_key + kPageTokens - 1) / kPageTokens; }
  int32_t page(int64_t tile) const { return sequence->page_table[tile]; }
};

// All rows of the problem in blocks of at most `capacity` rows. Blocks that see the most keys come first
// within a sequence's KV head, so that the last ones to be handed out are short.
std::vector<RowBlock> plan_row_blocks(const AttentionProblem& problem, int capacity);

}  // namespace kv8::attention::cpu
