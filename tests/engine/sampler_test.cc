#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace kv8::engine {
namespace {

std::vector<float> random_logits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

SamplingParams warm(float temperature = 1.0F, uint64_t seed = 1) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = seed;
  return params;
}

TEST(Sampler, GreedyTakesTheBestAndTheLowerOfTies) {
  Sampler sampler(SamplingParams{});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 5, -2}), 1);
  const auto logits = random_logits(5000, 2);
  EXPECT_EQ(sampler.sample(logits), std::ranges::max_element(logits) - logits.begin());
}

TEST(Sampler, SameSeedSameDraws) {
  const auto logits = random_logits(100, 3);
  Sampler a(warm(1.0F, 42)), b(warm(1.0F, 42)), c(warm(1.0F, 43));
  int differing = 0;
  for (int i = 0; i < 100; ++i) {
    const int32_t token = a.sample(logits);
    EXPECT_EQ(token, b.sample(logits));
    differing += token != c.sample(logits) ? 1 : 0;
  }
  EXPECT_GT(differing, 20);
}

// Frequencies against softmax in float64: chi-square with 7 degrees of freedom stays below its 1 - 1e-6
// quantile.
TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0.3F, -1.0F, 2.0F, 1.0F, 0.0F, -0.5F, 1.5F, 0.7F};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    Sampler sampler(warm(temperature, 9));
    std::vector<double> expected;
    double total = 0;
    for (const float logit : logits) total += expected.emplace_back(std::exp(logit / temperature));
    constexpr int kDraws = 200'000;
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sampler.sample(logits))];
    double chi_square = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double mean = kDraws * expected[i] / total;
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
    EXPECT_LT(chi_square, 40.0) << "temperature " << temperature;
  }
}

std::vector<int32_t> support(const SamplingParams& params, std::span<const float> logits) {
  Sampler sampler(params);
  std::map<int32_t, int> counts;
  for (int i = 0; i < 20'000; ++i) ++counts[sampler.sample(logits)];
  std::vector<int32_t> tokens;
  for (const auto& [token, count] : counts) tokens.push_back(token);
  return tokens;
}

TEST(Sampler, TopKTopPMinPKeepWhatTheyShould) {
  // Probabilities 0.4, 0.3, 0.2, 0.1 in a shuffled order.
  std::vector<float> logits;
  for (const double p : {0.2, 0.4, 0.1, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  auto params = warm();
  params.top_k = 2;
  EXPECT_EQ(support(params, logits), (std::vector<int32_t>{1, 3}));
  params = warm();
  params.top_p = 0.65F;
  EXPECT_EQ(support(params, logits), (std::vector<int32_t>{1, 3}));
  params.top_p = 0.75F;
  EXPECT_EQ(support(params, logits), (std::vector<int32_t>{0, 1, 3}));
  params = warm();
  params.min_p = 0.6F;
  EXPECT_EQ(support(params, logits), (std::vector<int32_t>{1, 3}));
  params.top_k = 1;
  EXPECT_EQ(support(params, logits), (std::vector<int32_t>{1}));
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegative) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  Sampler sampler(params);
  sampler.observe(0);
  EXPECT_EQ(sampler.sample(std::vector<float>{4.0F, 2.5F}), 1);  // 4 / 2 < 2.5
  EXPECT_EQ(sampler.sample(std::vector<float>{5.5F, 2.5F}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{-1.0F, -1.5F}), 1);  // -1 * 2 < -1.5
}

TEST(Sampler, SurvivesMinusInfinityAndOneToken) {
  const float none = -std::numeric_limits<float>::infinity();
  Sampler sampler(warm());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(sampler.sample(std::vector<float>{none, 1.0F, none}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{0.5F}), 0);
}

TEST(SamplingParams, RefusesWhatMakesNoSense) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& change : std::vector<std::function<void(SamplingParams&)>>{
           [](auto& p) { p.temperature = -1; }, [&](auto& p) { p.temperature = nan; },
           [](auto& p) { p.top_k = -1; }, [](auto& p) { p.top_p = 0; }, [](auto& p) { p.top_p = 1.1F; },
           [](auto& p) { p.min_p = -0.1F; }, [](auto& p) { p.repetition_penalty = 0; },
           [&](auto& p) { p.repetition_penalty = nan; }}) {
    SamplingParams params;
    EXPECT_TRUE(validate(params).has_value());
    change(params);
    EXPECT_FALSE(validate(params).has_value());
  }
}

}  // namespace
}  // namespace kv8::engine
