#include "attention/cpu/row_block.h"

namespace kv8::attention::cpu {

std::vector<RowBlock> plan_row_blocks(const AttentionProblem& problem, int capacity) {
  std::vector<RowBlock> blocks;
  const int group = problem.q_heads / problem.cache.kv_heads;
  for (const SequenceChunk& sequence : problem.sequences) {
    const int64_t rows = sequence.query_count * group;
    const int64_t count = (rows + capacity - 1) / capacity;
    for (int64_t index = count - 1; index >= 0; --index) {
      for (int head = 0; head < problem.cache.kv_heads; ++head) {
        RowBlock block{.problem = &problem, .sequence = &sequence, .kv_head = head};
        block.first_row = index * capacity;
        block.rows = static_cast<int>(std::min<int64_t>(capacity, rows - block.first_row));
        block.first_key = block.visible_from(0);
        block.end_key = block.position(block.rows - 1) + 1;
        blocks.push_back(block);
      }
    }
  }
  return blocks;
}

}  // namespace kv8::attention::cpu
