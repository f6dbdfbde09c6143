#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/cpu/modes.h"
#include "attention/cpu/row_block.h"

namespace kv8::attention::cpu {

namespace {

constexpr int kRowCapacity = 16;

// One row in float64: all scores first, then softmax, then the sum over values.
class ExactRow {
 public:
  ExactRow(const RowBlock& block, int row) : block_(block), row_(row), problem_(*block.problem) {
    unit_scales_.assign(problem_.cache.kv_heads, 1.0F);
    unscaled_ = problem_.cache;
    unscaled_.k_scale = unscaled_.v_scale = unit_scales_.data();
    numbers_.resize(static_cast<size_t>(kPageTokens) * unscaled_.head_dim);
  }

  void compute() {
    score_keys();
    double max = *std::max_element(weights_.begin(), weights_.end());
    double sum = 0.0;
    if (problem_.sinks != nullptr) {
      const double sink = problem_.sinks[block_.head(row_)];
      max = std::max(max, sink);
      sum = std::exp(sink - max);
    }
    for (double& weight : weights_) {
      weight = std::exp(weight - max);
      sum += weight;
    }
    add_values(sum);
  }

 private:
  int64_t first_key() const { return block_.visible_from(row_); }
  int64_t end_key() const { return block_.position(row_) + 1; }

  // visit(index of the key in weights_, its number in float64's exact widening) for each visible key. Pages
  // are widened with scale 1, which is exact; the scale is applied in float64.
  template <class Read, class Visit>
  void for_each_key(Read read, Visit visit) {
    const int head_dim = unscaled_.head_dim;
    for (int64_t key = first_key(); key < end_key();) {
      const int slot = static_cast<int>(key % kPageTokens);
      const int count = static_cast<int>(std::min<int64_t>(kPageTokens - slot, end_key() - key));
      read(unscaled_, block_.page(key / kPageTokens), block_.kv_head, slot, count, numbers_.data());
      for (int i = 0; i < count; ++i)
        visit(key + i - first_key(), numbers_.data() + static_cast<int64_t>(i) * head_dim);
      key += count;
    }
  }

  void score_keys() {
    weights_.resize(end_key() - first_key());
    const float* q = block_.q(row_);
    const double scale = static_cast<double>(problem_.softmax_scale) * problem_.cache.k_scale[block_.kv_head];
    const double cap = problem_.logit_soft_cap;
    for_each_key(read_keys, [&](int64_t index, const float* key) {
      double score = 0.0;
      for (int i = 0; i < unscaled_.head_dim; ++i) score += static_cast<double>(q[i]) * key[i];
      score *= scale;
      weights_[index] = cap > 0.0 ? cap * std::tanh(score / cap) : score;
    });
  }

  void add_values(double sum) {
    std::vector<double> acc(unscaled_.head_dim, 0.0);
    for_each_key(read_values, [&](int64_t index, const float* value) {
      for (int i = 0; i < unscaled_.head_dim; ++i) acc[i] += weights_[index] * value[i];
    });
    float* out = block_.out(row_);
    for (int i = 0; i < unscaled_.head_dim; ++i)
      out[i] = static_cast<float>(acc[i] / sum * problem_.cache.v_scale[block_.kv_head]);
  }

  const RowBlock& block_;
  int row_;
  const AttentionProblem& problem_;
  LayerCacheView unscaled_;
  std::vector<float> unit_scales_;
  std::vector<float> numbers_;
  std::vector<double> weights_;
};

}  // namespace

void attend_exact_problem(const AttentionProblem& problem, ThreadPool& pool) {
  const std::vector<RowBlock> blocks = plan_row_blocks(problem, kRowCapacity);
  pool.parallel_for(static_cast<int64_t>(blocks.size()), [&](int64_t index, int /*worker*/) {
    for (int row = 0; row < blocks[index].rows; ++row) ExactRow(blocks[index], row).compute();
  });
}

}  // namespace kv8::attention::cpu
