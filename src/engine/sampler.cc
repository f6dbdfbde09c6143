#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace kv8::engine {

Status validate(const SamplingParams& params) {
  const auto refuse = [](const char* field, const char* range) {
    return make_error(ErrorCode::invalid_argument, "{}: expected {}", field, range);
  };
  // Written so that NaN fails each test.
  if (!(params.temperature >= 0 && params.temperature <= 100))
    return refuse("temperature", "a number from 0 to 100");
  if (params.top_k < 0) return refuse("top-k", "0 (off) or a positive number of tokens");
  if (!(params.top_p > 0 && params.top_p <= 1)) return refuse("top-p", "a number in (0, 1]");
  if (!(params.min_p >= 0 && params.min_p <= 1)) return refuse("min-p", "a number from 0 to 1");
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= 100)) {
    return refuse("repetition-penalty", "a number in (0, 100]");
  }
  return {};
}

Sampler::Sampler(const SamplingParams& params) : params_(params), random_state_(params.seed) {}

void Sampler::observe(int32_t token) {
  if (params_.repetition_penalty != 1.0F) seen_.insert(token);
}

// SplitMix64 (Steele, Lea, Flood 2014): the same on every platform, unlike the standard library's
// distributions.
double Sampler::next_uniform() {
  random_state_ += 0x9E3779B97F4A7C15ULL;
  uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

int32_t Sampler::sample(std::span<const float> logits) {
  KV8_CHECK(!logits.empty(), "no logits");
  const auto penalised = [&](size_t token) {
    const float logit = logits[token];
    if (seen_.empty() || !seen_.contains(static_cast<int32_t>(token))) return logit;
    return logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
  };
  if (params_.temperature == 0.0F) {
    size_t best = 0;
    float best_logit = -std::numeric_limits<float>::infinity();
    for (size_t token = 0; token < logits.size(); ++token) {
      const float logit = penalised(token);
      if (logit > best_logit) {
        best_logit = logit;
        best = token;
      }
    }
    return static_cast<int32_t>(best);
  }

  candidates_.clear();
  for (size_t token = 0; token < logits.size(); ++token)
    candidates_.push_back({penalised(token), static_cast<int32_t>(token)});
  const auto more_probable = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  if (params_.top_k > 0 && static_cast<size_t>(params_.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + params_.top_k, candidates_.end(),
                     more_probable);
    candidates_.resize(static_cast<size_t>(params_.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), more_probable);

  // Weights relative to the best, so that the best is 1 and min-p is a plain comparison.
  weights_.clear();
  double total = 0;
  const double best = candidates_.front().logit;
  for (const Candidate& candidate : candidates_) {
    weights_.push_back(std::exp((candidate.logit - best) / params_.temperature));
    total += weights_.back();
  }
  size_t kept = 0;
  double sum = 0;
  while (kept < weights_.size() &&
         (kept == 0 || (sum < params_.top_p * total && weights_[kept] >= params_.min_p))) {
    sum += weights_[kept++];
  }
  double target = next_uniform() * sum;
  for (size_t i = 0; i < kept; ++i) {
    target -= weights_[i];
    if (target < 0) return candidates_[i].token;
  }
  return candidates_[kept - 1].token;
}

}  // namespace kv8::engine
