#include "eval/numerics_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <random>
#include <string_view>

#include "attention/cpu/layer_cache.h"
#include "attention/cpu/paged_attention.h"
#include "numerics/e4m3.h"

namespace kv8::eval {

namespace {

using attention::Accumulate;
using kv_cache::kPageTokens;

constexpr float kValueMean = 0.5F;

struct Pattern {
  std::string_view name;
  float sink = 0.0F;    // logit of the key at position 0, whose value is zero, as sinks' values are
  bool needle = false;  // a key in the middle with half of the weight
};
constexpr Pattern kPatterns[] = {{.name = "diffuse"},
                                 {.name = "sink +12", .sink = 12.0F},
                                 {.name = "sink +16", .sink = 16.0F},
                                 {.name = "needle p=0.5", .needle = true}};

// One sequence in an FP8 cache, keys N(0, 1), values N(0.5, 1), and one query per head with logits N(0, 1).
class LongContext {
 public:
  LongContext(const NumericsOptions& options, int64_t keys)
      : keys_(keys), heads_(options.heads), dim_(options.head_dim), random_(options.seed) {
    const int64_t pages = (keys + kPageTokens - 1) / kPageTokens;
    scales_.assign(heads_, 1.0F);
    page_table_.resize(pages);
    std::iota(page_table_.begin(), page_table_.end(), 0);
    cache_.format = kv_cache::KvFormat::fp8;
    cache_.kv_heads = heads_;
    cache_.head_dim = dim_;
    cache_.k_scale = cache_.v_scale = scales_.data();
    k_.assign(pages * cache_.page_bytes(), std::byte{0x7F});
    v_ = k_;
    cache_.k = k_.data();
    cache_.v = v_.data();
    for (int64_t key = 0; key < keys_; ++key) {
      const std::vector<float> k = normal(0.0F);
      const std::vector<float> v = normal(kValueMean);
      store(key, k, v);
    }
    q_ = normal(0.0F);
    for (int head = 0; head < heads_; ++head) round_query(head);
  }

  // Undoes what the pattern before has changed, and plants its own key.
  void plant(const Pattern& pattern) {
    const int64_t middle = keys_ / 2 + 37;
    store(0, normal(0.0F), normal(kValueMean));
    store(middle, normal(0.0F), normal(kValueMean));
    if (pattern.sink > 0.0F)
      store(0, key_with_logit(pattern.sink), std::vector<float>(static_cast<size_t>(heads_) * dim_, 0.0F));
    if (pattern.needle) {
      // The others' logits are N(0, 1), their weights e^(1/2) on average.
      const float logit = std::log(static_cast<float>(keys_)) + 0.5F;
      store(middle, key_with_logit(logit), normal(kValueMean));
    }
  }

  Expected<std::vector<float>> run(Accumulate mode, ThreadPool& pool) const {
    std::vector<float> out(q_.size());
    const attention::cpu::SequenceChunk sequence{0, 1, keys_ - 1, page_table_.data()};
    attention::cpu::AttentionProblem problem;
    problem.cache = cache_;
    problem.sequences = {&sequence, 1};
    problem.q = q_.data();
    problem.out = out.data();
    problem.q_heads = heads_;
    problem.q_stride = problem.out_stride = static_cast<int64_t>(heads_) * dim_;
    problem.softmax_scale = softmax_scale();
    KV8_RETURN_IF_ERROR(attention::cpu::paged_attention(problem, mode, pool));
    return out;
  }

 private:
  float softmax_scale() const { return 1.0F / std::sqrt(static_cast<float>(dim_)); }

  std::vector<float> normal(float mean) {
    std::normal_distribution<float> distribution(mean, 1.0F);
    std::vector<float> numbers(static_cast<size_t>(heads_) * dim_);
    for (float& number : numbers) number = distribution(random_);
    return numbers;
  }

  void store(int64_t key, const std::vector<float>& k, const std::vector<float>& v) {
    attention::cpu::write_token(cache_, page_table_[key / kPageTokens], static_cast<int>(key % kPageTokens),
                                k.data(), v.data());
  }

  // Rounds a query as attention will: then its rounding is no part of the error.
  void round_query(int head) {
    float* q = &q_[static_cast<size_t>(head) * dim_];
    float amax = 0.0F;
    for (int i = 0; i < dim_; ++i) amax = std::max(amax, std::fabs(q[i]));
    const float scale = amax / numerics::kE4m3Max;
    for (int i = 0; i < dim_; ++i)
      q[i] = numerics::e4m3_to_float(numerics::float_to_e4m3(q[i] / scale)) * scale;
  }

  std::vector<float> key_with_logit(float logit) const {
    std::vector<float> key(q_.size());
    for (int head = 0; head < heads_; ++head) {
      const float* q = &q_[static_cast<size_t>(head) * dim_];
      const float factor = logit / (softmax_scale() * std::inner_product(q, q + dim_, q, 0.0F));
      for (int i = 0; i < dim_; ++i) key[static_cast<size_t>(head) * dim_ + i] = q[i] * factor;
    }
    return key;
  }

  int64_t keys_;
  int heads_;
  int dim_;
  std::mt19937 random_;
  std::vector<float> scales_;
  std::vector<int32_t> page_table_;
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
  attention::cpu::LayerCacheView cache_;
  std::vector<float> q_;
};

double relative_error(const std::vector<float>& got, const std::vector<float>& right) {
  double error = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < right.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - right[i];
    error += difference * difference;
    size += static_cast<double>(right[i]) * right[i];
  }
  return std::sqrt(error / size);
}

std::vector<int64_t> lengths(int64_t max_keys) {
  std::vector<int64_t> result;
  for (const int64_t keys : {1024, 8192, 32768, 131072, 524288}) {
    if (keys < max_keys) result.push_back(keys);
  }
  result.push_back(max_keys);
  return result;
}

}  // namespace

Expected<std::vector<NumericsRow>> run_numerics(const NumericsOptions& options, ThreadPool& pool) {
  constexpr int64_t kLongest = int64_t{1} << 24;
  if (options.max_keys < 1024 || options.max_keys > kLongest)
    return make_error(ErrorCode::invalid_argument, "{} keys: expected 1024 to {}", options.max_keys,
                      kLongest);
  if (options.head_dim <= 0 || options.head_dim % 32 != 0 || options.head_dim > 512)
    return make_error(ErrorCode::invalid_argument, "head_dim {}: expected a multiple of 32 up to 512",
                      options.head_dim);
  if (options.heads <= 0 || options.heads > 256)
    return make_error(ErrorCode::invalid_argument, "{} heads: expected 1 to 256", options.heads);
  std::vector<NumericsRow> rows;
  const std::vector<int64_t> all_lengths = lengths(options.max_keys);
  const auto patterns = static_cast<int64_t>(std::size(kPatterns));
  const int64_t total = patterns * std::accumulate(all_lengths.begin(), all_lengths.end(), int64_t{0});
  int64_t done = 0;
  for (const int64_t keys : all_lengths) {
    LongContext context(options, keys);
    for (const Pattern& pattern : kPatterns) {
      NumericsRow row{.name = std::string(pattern.name), .keys = keys};
      context.plant(pattern);
      KV8_ASSIGN_OR_RETURN(const auto right, context.run(Accumulate::exact, pool));
      for (const auto& [mode, error] :
           {std::pair{Accumulate::single, &row.single}, std::pair{Accumulate::two_level, &row.two_level},
            std::pair{Accumulate::tile, &row.tile}, std::pair{Accumulate::f32, &row.f32}}) {
        KV8_ASSIGN_OR_RETURN(const auto out, context.run(mode, pool));
        *error = relative_error(out, right);
      }
      rows.push_back(row);
      done += keys;
      if (options.progress) options.progress(done, total);
    }
  }
  return rows;
}

}  // namespace kv8::eval
