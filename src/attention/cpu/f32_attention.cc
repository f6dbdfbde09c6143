#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "attention/cpu/f32_kernels.h"
#include "attention/cpu/modes.h"
#include "attention/cpu/row_block.h"

namespace kv8::attention::cpu {

namespace {

// Blocks are split over their keys until there are about this many tasks, so that threads stay evenly busy. A
// constant, and no function of the number of threads: results don't depend on the machine.
constexpr int64_t kWantedTasks = 32;

struct Task {
  int block = 0;
  int split = 0;
};

// A block's splits and where their partial results lie.
struct SplitBlock {
  RowBlock rows;
  int64_t tiles_per_split = 0;
  int splits = 1;
  size_t partial_offset = 0;  // floats
};

size_t partial_floats(const RowBlock& block) {
  return static_cast<size_t>(block.rows) * (block.problem->cache.head_dim + 2);
}

PartialRows partial_at(float* at, const RowBlock& block) {
  return {at, at + block.rows, at + 2 * static_cast<size_t>(block.rows)};
}

// Merges the splits of a block, in their order, adds the sinks, applies v_scale and writes the rows.
void finish_block(const RowBlock& block, float* partials, int splits) {
  const AttentionProblem& problem = *block.problem;
  const int head_dim = problem.cache.head_dim;
  const float v_scale = problem.cache.v_scale[block.kv_head];
  const size_t partial_size = partial_floats(block);
  for (int row = 0; row < block.rows; ++row) {
    float max = kNoKey;
    for (int split = 0; split < splits; ++split)
      max = std::max(max, partial_at(partials + split * partial_size, block).max[row]);
    float sum = 0.0F;
    if (problem.sinks != nullptr) {
      const float sink = problem.sinks[block.head(row)];
      max = std::max(max, sink);
      sum = std::exp(sink - max);
    }
    float* out = block.out(row);
    std::fill_n(out, head_dim, 0.0F);
    for (int split = 0; split < splits; ++split) {
      const PartialRows partial = partial_at(partials + split * partial_size, block);
      const float weight = std::exp(partial.max[row] - max);
      sum += partial.sum[row] * weight;
      const float* acc = partial.acc + static_cast<int64_t>(row) * head_dim;
      for (int i = 0; i < head_dim; ++i) out[i] += acc[i] * weight;
    }
    const float factor = v_scale / sum;
    for (int i = 0; i < head_dim; ++i) out[i] *= factor;
  }
}

// Scratch outlives a call: decode calls this once a layer, and fresh memory would cost page faults each time.
F32Scratch& worker_scratch() {
  thread_local F32Scratch scratch;
  return scratch;
}
std::vector<float>& partials_buffer() {
  thread_local std::vector<float> partials;
  return partials;
}

}  // namespace

void attend_f32_problem(const AttentionProblem& problem, ThreadPool& pool) {
  const std::vector<RowBlock> rows = plan_row_blocks(problem, kF32RowCapacity);
  if (rows.empty()) return;
  const auto wanted_splits =
      (kWantedTasks + static_cast<int64_t>(rows.size()) - 1) / static_cast<int64_t>(rows.size());
  std::vector<SplitBlock> blocks;
  std::vector<Task> tasks;
  size_t partials_size = 0;
  for (const RowBlock& block : rows) {
    const int64_t tiles = block.end_tile() - block.first_tile();
    SplitBlock split{.rows = block};
    split.tiles_per_split = (tiles + wanted_splits - 1) / wanted_splits;
    split.splits = static_cast<int>((tiles + split.tiles_per_split - 1) / split.tiles_per_split);
    split.partial_offset = partials_size;
    partials_size += split.splits * partial_floats(block);
    for (int i = 0; i < split.splits; ++i) tasks.push_back({static_cast<int>(blocks.size()), i});
    blocks.push_back(split);
  }
  std::vector<float>& partials = partials_buffer();
  if (partials.size() < partials_size) partials.resize(partials_size);
  // Who finishes a block's last split merges them all.
  const auto pending = std::make_unique<std::atomic<int>[]>(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) pending[i].store(blocks[i].splits, std::memory_order_relaxed);
  float* const base = partials.data();
  pool.parallel_for(static_cast<int64_t>(tasks.size()), [&](int64_t index, int /*worker*/) {
    const Task task = tasks[index];
    const SplitBlock& block = blocks[task.block];
    const int64_t first = block.rows.first_tile() + task.split * block.tiles_per_split;
    const int64_t end = std::min(first + block.tiles_per_split, block.rows.end_tile());
    float* const own = base + block.partial_offset;
    attend_f32(block.rows, first, end, worker_scratch(),
               partial_at(own + task.split * partial_floats(block.rows), block.rows));
    if (pending[task.block].fetch_sub(1, std::memory_order_acq_rel) == 1)
      finish_block(block.rows, own, block.splits);
  });
}

}  // namespace kv8::attention::cpu
