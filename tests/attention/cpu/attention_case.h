// A random attention problem over a paged cache with a poisoned pool, and a float64 reference that shares no
// code with the library: it reads plain vectors, not pages.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "attention/cpu/layer_cache.h"
#include "attention/cpu/paged_attention.h"
#include "numerics/e4m3.h"
#include "numerics/half.h"

namespace kv8::attention::test {

using cpu::AttentionProblem;
using cpu::SequenceChunk;
using kv_cache::kPageTokens;
using kv_cache::KvFormat;

// Sanitized kernels and references are many times slower: there the same classes of cases have fewer tokens.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct CaseOptions {
  KvFormat format = KvFormat::fp8;
  int q_heads = 6;
  int kv_heads = 2;
  int head_dim = 64;
  int64_t tokens = 300;
  int64_t queries = 1;  // the last ones
  int64_t window = 0;
  float cap = 0.0F;
  bool sinks = false;
  float k_scale = 1.0F;  // of head 0; head h has k_scale * (1 + h / 4)
  float v_scale = 1.0F;
  float v_mean = 0.5F;
  float q_deviation = 1.0F;
  uint8_t poison = 0x7F;  // of the whole pool before it is written
  uint32_t seed = 1;
  int spare_pages = 3;
};

// One sequence of `tokens` tokens; its pages lie in the pool in random order.
class AttentionCase {
 public:
  explicit AttentionCase(const CaseOptions& options) : options_(options), random_(options.seed) {
    const size_t kv_row = static_cast<size_t>(options.kv_heads) * options.head_dim;
    keys_ = normal(options.tokens * kv_row, 0.0F, 1.0F);
    values_ = normal(options.tokens * kv_row, options.v_mean, 1.0F);
    q_ = normal(options.queries * options.q_heads * static_cast<size_t>(options.head_dim), 0.0F,
                options.q_deviation);
    sinks_ = normal(options.q_heads, 1.0F, 1.0F);
    for (int head = 0; head < options.kv_heads; ++head) {
      k_scale_.push_back(options.format == KvFormat::fp8 ? options.k_scale * (1.0F + 0.25F * head) : 1.0F);
      v_scale_.push_back(options.format == KvFormat::fp8 ? options.v_scale * (1.0F + 0.5F * head) : 1.0F);
    }
  }

  // What tests change before store().
  std::vector<float>& keys() { return keys_; }  // [tokens, kv_heads, head_dim]
  std::vector<float>& values() { return values_; }
  std::vector<float>& q() { return q_; }  // [queries, q_heads, head_dim]
  std::vector<float>& sinks() { return sinks_; }
  std::vector<float>& k_scale() { return k_scale_; }
  std::vector<float>& v_scale() { return v_scale_; }
  const CaseOptions& options() const { return options_; }

  // Writes all tokens into the cache.
  void store() {
    const int64_t pages = (options_.tokens + kPageTokens - 1) / kPageTokens;
    const int64_t pool = pages + options_.spare_pages;
    cache_.format = options_.format;
    cache_.kv_heads = options_.kv_heads;
    cache_.head_dim = options_.head_dim;
    cache_.k_scale = k_scale_.data();
    cache_.v_scale = v_scale_.data();
    k_pool_.assign(pool * cache_.page_bytes(), std::byte{options_.poison});
    v_pool_ = k_pool_;
    cache_.k = k_pool_.data();
    cache_.v = v_pool_.data();
    std::vector<int32_t> order(pool);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    page_table_.assign(order.begin(), order.begin() + pages);
    const size_t row = static_cast<size_t>(options_.kv_heads) * options_.head_dim;
    for (int64_t token = 0; token < options_.tokens; ++token)
      cpu::write_token(cache_, page_table_[token / kPageTokens], static_cast<int>(token % kPageTokens),
                       &keys_[token * row], &values_[token * row]);
  }

  // Computes the queries in chunks of `chunk` (0: all at once), as a model would step by step.
  std::vector<float> run(Accumulate mode, ThreadPool& pool, int64_t chunk = 0) {
    std::vector<float> out(q_.size(), -12345.0F);
    if (chunk <= 0) chunk = options_.queries;
    for (int64_t begin = 0; begin < options_.queries; begin += chunk) {
      const SequenceChunk sequence{.query_begin = begin,
                                   .query_count = std::min(chunk, options_.queries - begin),
                                   .first_position = options_.tokens - options_.queries + begin,
                                   .page_table = page_table_.data()};
      AttentionProblem problem = describe(out.data());
      problem.sequences = {&sequence, 1};
      const Status status = cpu::paged_attention(problem, mode, pool);
      if (!status) return {};
    }
    return out;
  }

  // Everything but the sequences.
  AttentionProblem describe(float* out) const {
    AttentionProblem problem;
    problem.cache = cache_;
    problem.q = q_.data();
    problem.out = out;
    problem.q_stride = problem.out_stride = static_cast<int64_t>(options_.q_heads) * options_.head_dim;
    problem.q_heads = options_.q_heads;
    problem.softmax_scale = softmax_scale();
    problem.logit_soft_cap = options_.cap;
    problem.window = options_.window;
    problem.sinks = options_.sinks ? sinks_.data() : nullptr;
    return problem;
  }
  const std::vector<int32_t>& page_table() const { return page_table_; }
  cpu::LayerCacheView& cache() { return cache_; }

  // float64 from the vectors. With `rounded`, keys and values are first rounded as the cache's format rounds.
  std::vector<double> reference(bool rounded = true) const {
    const int group = options_.q_heads / options_.kv_heads;
    const int64_t row = static_cast<int64_t>(options_.kv_heads) * options_.head_dim;
    std::vector<double> out(q_.size());
    std::vector<double> k(keys_.size());
    std::vector<double> v(values_.size());
    for (size_t i = 0; i < k.size(); ++i) {
      const auto head = static_cast<int>(i / options_.head_dim % options_.kv_heads);
      k[i] = rounded ? round(keys_[i], k_scale_[head]) : keys_[i];
      v[i] = rounded ? round(values_[i], v_scale_[head]) : values_[i];
    }
    for (int64_t query = 0; query < options_.queries; ++query) {
      const int64_t position = options_.tokens - options_.queries + query;
      const int64_t first = options_.window > 0 ? std::max<int64_t>(0, position - options_.window + 1) : 0;
      for (int head = 0; head < options_.q_heads; ++head) {
        const int64_t at = (query * options_.q_heads + head) * options_.head_dim;
        const int64_t kv = head / group * static_cast<int64_t>(options_.head_dim);
        std::vector<double> weights;
        double max = options_.sinks ? sinks_[head] : -1e300;
        for (int64_t key = first; key <= position; ++key) {
          double score = 0.0;
          for (int i = 0; i < options_.head_dim; ++i) score += q_[at + i] * k[key * row + kv + i];
          score *= softmax_scale();
          if (options_.cap > 0) score = options_.cap * std::tanh(score / options_.cap);
          weights.push_back(score);
          max = std::max(max, score);
        }
        double sum = options_.sinks ? std::exp(sinks_[head] - max) : 0.0;
        for (double& weight : weights) sum += weight = std::exp(weight - max);
        for (int i = 0; i < options_.head_dim; ++i) {
          double total = 0.0;
          for (int64_t key = first; key <= position; ++key)
            total += weights[key - first] * v[key * row + kv + i];
          out[at + i] = total / sum;
        }
      }
    }
    return out;
  }

  float softmax_scale() const { return 1.0F / std::sqrt(static_cast<float>(options_.head_dim)); }

 private:
  std::vector<float> normal(size_t count, float mean, float deviation) {
    std::normal_distribution<float> distribution(mean, deviation);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = distribution(random_);
    return numbers;
  }

  double round(float x, float scale) const {
    switch (options_.format) {
      case KvFormat::f32:
        return x;
      case KvFormat::bf16:
        return numerics::bf16_to_float(numerics::float_to_bf16(x));
      case KvFormat::fp8:
        return static_cast<double>(numerics::e4m3_to_float(numerics::float_to_e4m3(x * (1.0F / scale)))) *
               scale;
    }
    return 0.0;
  }

  CaseOptions options_;
  std::mt19937 random_;
  std::vector<float> keys_;
  std::vector<float> values_;
  std::vector<float> q_;
  std::vector<float> sinks_;
  std::vector<float> k_scale_;
  std::vector<float> v_scale_;
  std::vector<std::byte> k_pool_;
  std::vector<std::byte> v_pool_;
  std::vector<int32_t> page_table_;
  cpu::LayerCacheView cache_;
};

// Root mean square of the difference over root mean square of `right`. NaN or a length that differs:
// infinite.
template <class A, class B>
double relative_error(const A& got, const B& right) {
  if (got.size() != right.size() || got.size() == 0) return INFINITY;
  double error = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < right.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(right[i]);
    error += difference * difference;
    size += static_cast<double>(right[i]) * static_cast<double>(right[i]);
  }
  return std::isnan(error) ? INFINITY : std::sqrt(error / size);
}

}  // namespace kv8::attention::test
