#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/cpu/modes.h"
#include "attention/cpu/row_block.h"
#include "numerics/e4m3.h"
#include "numerics/exp2.h"
#include "numerics/hopper_accumulator.h"

// Attention as the FP8 kernels on Hopper do it, through the emulated tensor core (docs/numerics.md).

namespace kv8::attention::cpu {

namespace {

using numerics::kHopperStep;

constexpr int kRowCapacity = 64;  // rows that share the preparation of a tile
constexpr int kTile = kPageTokens;
constexpr float kLog2E = 1.44269504088896341F;
// Mode tile: Q*K sums go to float32 after so many steps of 32 dims.
constexpr int kQkStepsPerLevel = 2;
constexpr float kWeightExponent = 8.0F;  // P = 2^(score - max + 8), at most 256 of e4m3's 448
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// One query row and its online softmax.
struct Row {
  numerics::HopperRow q;
  float score_scale = 0.0F;  // from products of codes to scores in powers of two
  int64_t from = 0;          // visible keys, inclusive
  int64_t to = 0;
  float max = kNothing;
  float sum = 0.0F;        // of quantised weights, 2^(8 - max) each; exact within a tile
  std::vector<float> acc;  // [padded head_dim]
};

// Eight running results each, so that the loops don't wait for one. Sums of a tile's quantised weights are
// exact in any order: multiples of 2^-9 below 2^15.
constexpr int kRunning = 8;

float largest(const std::vector<float>& numbers) {
  float running[kRunning];
  std::fill_n(running, kRunning, kNothing);
  for (size_t i = 0; i < numbers.size(); i += kRunning) {
    for (size_t lane = 0; lane < kRunning; ++lane) running[lane] = std::max(numbers[i + lane], running[lane]);
  }
  return *std::max_element(running, running + kRunning);
}

float total(const std::vector<float>& numbers) {
  float running[kRunning] = {};
  for (size_t i = 0; i < numbers.size(); i += kRunning) {
    for (size_t lane = 0; lane < kRunning; ++lane) running[lane] += numbers[i + lane];
  }
  float sum = 0.0F;
  for (const float part : running) sum += part;
  return sum;
}

class HopperBlock {
 public:
  HopperBlock(const RowBlock& block, Accumulate mode)
      : block_(block), problem_(*block.problem), cache_(block.problem->cache), mode_(mode) {
    scores_.resize(kTile);
    level_.resize(kTile);
    weights_.resize(kTile);
    values_.resize(static_cast<size_t>(kTile) * cache_.head_dim);
    for (int i = 0; i < block.rows; ++i) rows_.push_back(begin_row(i));
  }

  void compute() {
    for (int64_t tile = block_.first_tile(); tile < block_.end_tile(); ++tile) {
      prepare_tile(tile);
      for (Row& row : rows_) {
        if (row.from >= (tile + 1) * kTile || row.to < tile * kTile) continue;
        score(row);
        mask_and_cap(row, tile * kTile);
        add_tile(row);
      }
    }
    for (int i = 0; i < block_.rows; ++i) finish_row(i);
  }

 private:
  // Q is scaled per (token, head) by its own largest magnitude.
  Row begin_row(int index) {
    Row row;
    const float* q = block_.q(index);
    float amax = 0.0F;
    for (int i = 0; i < cache_.head_dim; ++i) amax = std::max(amax, std::fabs(q[i]));
    const float q_scale = amax > 0.0F ? amax / numerics::kE4m3Max : 1.0F;
    std::vector<uint8_t> codes(cache_.head_dim);
    numerics::quantize_e4m3(q, codes.size(), 1.0F / q_scale, codes.data());
    row.q.assign(codes.data(), cache_.head_dim);
    row.score_scale = q_scale * cache_.k_scale[block_.kv_head] * problem_.softmax_scale * kLog2E;
    row.from = block_.visible_from(index);
    row.to = block_.position(index);
    return row;
  }

  // Slots behind the block's last key may hold anything, NaN too. Their values must not meet the tensor core:
  // 0 * NaN is NaN. Their keys' scores are masked.
  void prepare_tile(int64_t tile) {
    const auto used = static_cast<int>(std::min<int64_t>(kTile, block_.end_key - tile * kTile));
    const int32_t page = block_.page(tile);
    const auto* k = reinterpret_cast<const uint8_t*>(cache_.key(page, block_.kv_head, 0));
    const auto* v = reinterpret_cast<const uint8_t*>(cache_.value(page, block_.kv_head, 0));
    const auto used_codes = static_cast<int64_t>(used) * cache_.head_dim;
    std::copy_n(k, used_codes, values_.begin());
    std::fill(values_.begin() + used_codes, values_.end(), 0);
    k_.assign_transposed(values_.data(), cache_.head_dim, kTile, cache_.head_dim);
    std::copy_n(v, used_codes, values_.begin());
    v_.assign(values_.data(), kTile, cache_.head_dim, cache_.head_dim);
  }

  void score(const Row& row) {
    const int steps_per_level = mode_ == Accumulate::tile ? kQkStepsPerLevel : cache_.head_dim / kHopperStep;
    std::fill(scores_.begin(), scores_.end(), 0.0F);
    for (int dim = 0; dim < cache_.head_dim;) {
      std::fill(level_.begin(), level_.end(), 0.0F);
      for (int step = 0; step < steps_per_level && dim < cache_.head_dim; ++step, dim += kHopperStep)
        k_.step(row.q, dim, level_.data());
      for (int key = 0; key < kTile; ++key) scores_[key] += level_[key];
    }
  }

  // Scores in powers of two; -infinity where the row doesn't look.
  void mask_and_cap(const Row& row, int64_t first_key) {
    for (float& score : scores_) score *= row.score_scale;
    if (problem_.logit_soft_cap > 0.0F) {
      const float cap = problem_.logit_soft_cap * kLog2E;
      for (float& score : scores_) score = cap * std::tanh(score / cap);
    }
    const int64_t from = std::clamp<int64_t>(row.from - first_key, 0, kTile);
    const int64_t end = std::clamp<int64_t>(row.to + 1 - first_key, 0, kTile);
    std::fill(scores_.begin(), scores_.begin() + from, kNothing);
    std::fill(scores_.begin() + end, scores_.end(), kNothing);
  }

  void add_tile(Row& row) {
    const float tile_max = largest(scores_);
    const float max = std::max(row.max, tile_max);
    const float reference = mode_ == Accumulate::tile ? tile_max : max;
    for (float& score : scores_) score = score - reference + kWeightExponent;
    numerics::exp2_span(scores_.data(), kTile, scores_.data());
    numerics::quantize_e4m3(scores_.data(), kTile, 1.0F, weights_.data());
    numerics::dequantize_e4m3(weights_.data(), kTile, 1.0F, scores_.data());
    const float sum = total(scores_);
    p_.assign(weights_.data(), kTile);

    if (row.acc.empty()) row.acc.assign(v_.padded_columns(), 0.0F);
    const float old_factor = row.max == kNothing ? 0.0F : std::exp2(row.max - max);
    const float tile_factor = mode_ == Accumulate::tile ? std::exp2(tile_max - max) : 1.0F;
    row.sum = row.sum * old_factor + sum * tile_factor;
    row.max = max;
    if (mode_ == Accumulate::single) {
      for (float& number : row.acc) number *= old_factor;
      for (int key = 0; key < kTile; key += kHopperStep) v_.step(p_, key, row.acc.data());
      return;
    }
    part_.assign(v_.padded_columns(), 0.0F);
    for (int key = 0; key < kTile; key += kHopperStep) v_.step(p_, key, part_.data());
    for (size_t i = 0; i < row.acc.size(); ++i) row.acc[i] = row.acc[i] * old_factor + part_[i] * tile_factor;
  }

  void finish_row(int index) {
    Row& row = rows_[index];
    float factor = 1.0F;
    float sum = row.sum;
    if (problem_.sinks != nullptr) {
      const float sink = problem_.sinks[block_.head(index)] * kLog2E;
      const float max = std::max(row.max, sink);
      factor = std::exp2(row.max - max);
      sum = sum * factor + std::exp2(sink - max + kWeightExponent);
    }
    factor *= cache_.v_scale[block_.kv_head] / sum;
    float* out = block_.out(index);
    for (int i = 0; i < cache_.head_dim; ++i) out[i] = row.acc[i] * factor;
  }

  const RowBlock& block_;
  const AttentionProblem& problem_;
  const LayerCacheView& cache_;
  Accumulate mode_;
  std::vector<Row> rows_;
  numerics::HopperMatrix k_;  // [head_dim, keys of the tile]
  numerics::HopperMatrix v_;  // [keys of the tile, head_dim]
  numerics::HopperRow p_;
  std::vector<float> scores_;
  std::vector<float> level_;
  std::vector<float> part_;
  std::vector<uint8_t> weights_;
  std::vector<uint8_t> values_;
};

}  // namespace

void attend_hopper_problem(const AttentionProblem& problem, Accumulate mode, ThreadPool& pool) {
  const std::vector<RowBlock> blocks = plan_row_blocks(problem, kRowCapacity);
  pool.parallel_for(static_cast<int64_t>(blocks.size()),
                    [&](int64_t index, int /*worker*/) { HopperBlock(blocks[index], mode).compute(); });
}

}  // namespace kv8::attention::cpu
