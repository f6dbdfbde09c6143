// The modes that emulate Hopper: against their definition written out with scalars, against float64, and on
// the inputs that broke other engines.
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "attention/cpu/attention_case.h"
#include "numerics/hopper_accumulator.h"

namespace kv8::attention::test {
namespace {

using numerics::e4m3_to_float;
using numerics::float_to_e4m3;

constexpr Accumulate kHopperModes[] = {Accumulate::tile, Accumulate::two_level, Accumulate::single};

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

// One row of docs/numerics.md, step by step, with the scalar tensor core. keys and values: [tokens, dim]
// codes.
std::vector<float> by_definition(Accumulate mode, const std::vector<float>& q,
                                 const std::vector<uint8_t>& keys, const std::vector<uint8_t>& values,
                                 float score_scale, float v_scale) {
  const auto dim = static_cast<int>(q.size());
  const auto tokens = static_cast<int>(keys.size() / q.size());
  float amax = 0.0F;
  for (const float x : q) amax = std::max(amax, std::fabs(x));
  const float q_scale = amax / 448.0F;
  std::vector<uint8_t> q_codes;
  for (const float x : q) q_codes.push_back(float_to_e4m3(x / q_scale));
  float max = -std::numeric_limits<float>::infinity();
  double sum = 0.0;
  std::vector<float> acc(dim, 0.0F);
  for (int first = 0; first < tokens; first += 128) {
    std::vector<float> scores;
    for (int key = first; key < std::min(first + 128, tokens); ++key) {
      float score = 0.0F;
      float chain = 0.0F;
      for (int i = 0; i < dim; i += 32) {
        chain = numerics::hopper_step(&q_codes[i], &keys[static_cast<size_t>(key) * dim + i], chain);
        if (mode == Accumulate::tile && i % 64 == 32) {
          score += chain;
          chain = 0.0F;
        }
      }
      scores.push_back((score + chain) * (q_scale * score_scale * 1.44269504F));
    }
    const float tile_max = *std::max_element(scores.begin(), scores.end());
    const float new_max = std::max(max, tile_max);
    const float reference = mode == Accumulate::tile ? tile_max : new_max;
    std::vector<uint8_t> p(128, 0);
    double tile_sum = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) {
      p[i] = float_to_e4m3(std::exp2(scores[i] - reference) * 256.0F);
      tile_sum += e4m3_to_float(p[i]);
    }
    const float old_factor = std::exp2(max - new_max);
    const float tile_factor = std::exp2(reference - new_max);
    sum = sum * old_factor + tile_sum * tile_factor;
    max = new_max;
    for (int i = 0; i < dim; ++i) {
      float part = mode == Accumulate::single ? acc[i] * old_factor : 0.0F;
      for (int group = 0; group < 128; group += 32) {
        std::vector<uint8_t> column(32, 0);
        for (int key = 0; key < 32 && first + group + key < tokens; ++key)
          column[key] = values[static_cast<size_t>(first + group + key) * dim + i];
        part = numerics::hopper_step(&p[group], column.data(), part);
      }
      acc[i] = mode == Accumulate::single ? part : acc[i] * old_factor + part * tile_factor;
    }
  }
  for (float& x : acc) x = static_cast<float>(x / sum) * v_scale;
  return acc;
}

TEST(HopperModes, FollowTheirDefinition) {
  for (const int dim : {64, 96, 128}) {
    CaseOptions options{.q_heads = 2, .kv_heads = 2, .head_dim = dim, .tokens = 500, .queries = 1};
    options.k_scale = 0.5F;
    options.v_scale = 0.25F;
    options.q_deviation = 2.0F;
    AttentionCase problem(options);
    problem.store();
    for (int head = 0; head < 2; ++head) {
      std::vector<uint8_t> keys;
      std::vector<uint8_t> values;
      for (int64_t token = 0; token < options.tokens; ++token) {
        for (int i = 0; i < dim; ++i) {
          const size_t at = (token * 2 + head) * dim + i;
          keys.push_back(float_to_e4m3(problem.keys()[at] * (1.0F / problem.k_scale()[head])));
          values.push_back(float_to_e4m3(problem.values()[at] * (1.0F / problem.v_scale()[head])));
        }
      }
      const std::vector<float> q(&problem.q()[head * dim], &problem.q()[head * dim] + dim);
      for (const Accumulate mode : kHopperModes) {
        const auto expected =
            by_definition(mode, q, keys, values, problem.k_scale()[head] * problem.softmax_scale(),
                          problem.v_scale()[head]);
        const auto out = problem.run(mode, pool());
        const std::vector<float> got(&out[head * dim], &out[head * dim] + dim);
        // exp2 may round a weight the other way here and there: one e4m3 step of one key in 500.
        EXPECT_LT(relative_error(got, expected), 5e-4) << to_string(mode) << " head_dim " << dim;
      }
    }
  }
}

TEST(HopperModes, EveryMaskGroupAndHeadSizeNearFloat64) {
  uint32_t seed = 40;
  for (const int dim : {64, 128, 256}) {
    for (const int group : {1, 3, 8, 16}) {
      for (const int64_t window : {0, 100}) {
        for (const float cap : {0.0F, 4.0F}) {
          CaseOptions options{.q_heads = group, .kv_heads = 1, .head_dim = dim, .tokens = 277};
          options.queries = 1 + seed % 5;
          options.window = window;
          options.cap = cap;
          options.sinks = seed % 2 == 0;
          options.k_scale = 0.4F;
          options.seed = ++seed;
          AttentionCase problem(options);
          problem.store();
          const auto right = problem.reference();
          for (const Accumulate mode : kHopperModes)
            EXPECT_LT(relative_error(problem.run(mode, pool()), right), 0.02)
                << to_string(mode) << " dim " << dim << " group " << group << " window " << window << " cap "
                << cap;
        }
      }
    }
  }
}

// A row's tiles are the same whoever computes it, so here the results are equal bit for bit.
TEST(HopperModes, DecodeChunkedAndOneShotAreEqual) {
  CaseOptions options{.q_heads = 4, .kv_heads = 2, .tokens = 400, .queries = kSanitized ? 50 : 150};
  AttentionCase problem(options);
  problem.store();
  for (const Accumulate mode : kHopperModes) {
    const auto one_shot = problem.run(mode, pool());
    EXPECT_EQ(problem.run(mode, pool(), 1), one_shot) << to_string(mode);
    EXPECT_EQ(problem.run(mode, pool(), 37), one_shot) << to_string(mode);
  }
}

TEST(HopperModes, PoisonedSlotsStayOut) {
  for (const Accumulate mode : kHopperModes) {
    CaseOptions options{.tokens = 170, .queries = 3};
    AttentionCase first(options);
    first.store();
    options.poison = 0xFF;
    AttentionCase second(options);
    second.store();
    const auto out = first.run(mode, pool());
    EXPECT_EQ(out, second.run(mode, pool())) << to_string(mode);
    EXPECT_LT(relative_error(out, first.reference()), 0.02) << to_string(mode);
  }
}

// With powers of two, under which nothing is rounded differently.
TEST(HopperModes, ScalesCancel) {
  CaseOptions options{.q_heads = 2, .kv_heads = 1, .tokens = 200, .queries = 2};
  AttentionCase plain(options);
  plain.store();
  AttentionCase scaled(options);
  for (float& key : scaled.keys()) key *= 8.0F;
  for (float& value : scaled.values()) value *= 0.25F;
  for (float& q : scaled.q()) q /= 8.0F;
  scaled.k_scale()[0] *= 8.0F;
  scaled.v_scale()[0] *= 0.25F;
  scaled.store();
  for (const Accumulate mode : kHopperModes) {
    auto expected = plain.run(mode, pool());
    for (float& x : expected) x *= 0.25F;
    EXPECT_LT(relative_error(scaled.run(mode, pool()), expected), 1e-6) << to_string(mode);
  }
}

// A sequence whose logits are given: q and the keys have one channel that isn't zero. head_dim 32, V = 1.
class GivenLogits {
 public:
  explicit GivenLogits(const std::vector<float>& logits) : tokens_(static_cast<int64_t>(logits.size())) {
    const int64_t pages = (tokens_ + kPageTokens - 1) / kPageTokens;
    cache_.format = KvFormat::fp8;
    cache_.kv_heads = 1;
    cache_.head_dim = 32;
    cache_.k_scale = cache_.v_scale = &unit_;
    k_.assign(pages * cache_.page_bytes(), std::byte{0x7F});
    v_ = k_;
    cache_.k = k_.data();
    cache_.v = v_.data();
    for (int64_t page = 0; page < pages; ++page) page_table_.push_back(static_cast<int32_t>(page));
    std::vector<float> key(32, 0.0F);
    const std::vector<float> ones(32, 1.0F);
    for (int64_t token = 0; token < tokens_; ++token) {
      key[7] = logits[token];
      cpu::write_token(cache_, page_table_[token / kPageTokens], static_cast<int>(token % kPageTokens),
                       key.data(), ones.data());
    }
  }

  // The largest distance of an output from 1.
  double error(Accumulate mode) const {
    std::vector<float> q(32, 0.0F);
    q[7] = 1.0F;
    std::vector<float> out(32, 0.0F);
    const SequenceChunk sequence{0, 1, tokens_ - 1, page_table_.data()};
    AttentionProblem problem;
    problem.cache = cache_;
    problem.sequences = {&sequence, 1};
    problem.q = q.data();
    problem.out = out.data();
    problem.q_stride = problem.out_stride = 32;
    problem.q_heads = 1;
    problem.softmax_scale = 1.0F;
    if (!cpu::paged_attention(problem, mode, pool())) return INFINITY;
    double worst = 0.0;
    for (const float x : out) worst = std::isnan(x) ? INFINITY : std::max<double>(worst, std::fabs(x - 1.0F));
    return worst;
  }

 private:
  int64_t tokens_;
  float unit_ = 1.0F;
  cpu::LayerCacheView cache_;
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
  std::vector<int32_t> page_table_;
};

TEST(HopperModes, ValuesOfOneGiveOne) {
  std::mt19937 random(3);
  for (const int64_t tokens : {1024, 30011, kSanitized ? 1 << 16 : 1 << 20}) {
    std::uniform_real_distribution<float> uniform(-3.0F, 3.0F);
    std::normal_distribution<float> normal(0.0F, 1.5F);
    std::vector<std::pair<std::string, std::vector<float>>> cases;
    std::vector<float> logits(tokens);
    for (float& logit : logits) logit = uniform(random);
    cases.emplace_back("uniform", logits);
    for (float& logit : logits) logit = normal(random);  // weights are log-normal
    cases.emplace_back("log-normal", logits);
    for (const int64_t where : {int64_t{0}, tokens / 2, tokens - 1}) {
      std::vector<float> dominant(tokens, 0.0F);
      dominant[where] = 16.0F;
      cases.emplace_back(fmt::format("one key at {}", where), dominant);
    }
    for (const auto& [name, scores] : cases) {
      const GivenLogits problem(scores);
      EXPECT_LT(problem.error(Accumulate::tile), 0.005) << name << " " << tokens;
      EXPECT_LT(problem.error(Accumulate::f32), tokens < 1 << 20 ? 1e-5 : 2e-4) << name << " " << tokens;
    }
  }
}

// The fault that two levels are there for: the test above can fail.
TEST(HopperModes, OneAccumulatorLosesLongSums) {
  const GivenLogits problem(std::vector<float>(131072, 0.0F));
  EXPECT_GT(problem.error(Accumulate::single), 0.2);
  EXPECT_LT(problem.error(Accumulate::two_level), 0.005);
}

// The maximum grows with every tile, and with every key.
TEST(HopperModes, GrowingScoresNeverSaturate) {
  std::vector<float> logits(4000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) * 0.02F;
  const GivenLogits problem(logits);
  for (const Accumulate mode : {Accumulate::tile, Accumulate::two_level})
    EXPECT_LT(problem.error(mode), 0.005) << to_string(mode);
}

// A large constant in a channel of K. Too large for the format it is counted; inside it, it hides the
// other channels of its instruction; taken out before quantisation it is harmless, since softmax ignores it.
TEST(HopperModes, ALargeKeyChannelIsCountedAndCanBeTakenOut) {
  CaseOptions options{.q_heads = 1, .kv_heads = 1, .tokens = 600, .queries = 1};
  const auto error_with = [&](float constant, bool removed) {
    AttentionCase problem(options);
    problem.q()[9] = 16.0F;
    if (!removed) {
      for (int64_t token = 0; token < options.tokens; ++token) problem.keys()[token * 64 + 9] += constant;
    }
    problem.store();
    return relative_error(problem.run(Accumulate::tile, pool()), problem.reference());
  };
  EXPECT_GT(error_with(400.0F, false), 2.0 * error_with(400.0F, true));
  EXPECT_LT(error_with(400.0F, true), 0.02);

  AttentionCase problem(options);
  problem.store();
  std::vector<float> key(64, 1.0F);
  const std::vector<float> value(64, 1.0F);
  key[9] = 700.0F;
  EXPECT_EQ(cpu::write_token(problem.cache(), 0, 0, key.data(), value.data()), 1);
  problem.k_scale()[0] = 700.0F / 448.0F;
  EXPECT_EQ(cpu::write_token(problem.cache(), 0, 0, key.data(), value.data()), 0);
}

// What a mode can't do is refused, with what would work.
TEST(HopperModes, RefuseWhatTheyCannotDo) {
  for (const auto& [format, dim, word] :
       {std::tuple{KvFormat::bf16, 64, "bf16"}, std::tuple{KvFormat::fp8, 80, "80"}}) {
    CaseOptions options{.format = format, .head_dim = dim};
    AttentionCase problem(options);
    problem.store();
    std::vector<float> out(problem.q().size());
    const SequenceChunk sequence{0, 1, options.tokens - 1, problem.page_table().data()};
    AttentionProblem description = problem.describe(out.data());
    description.sequences = {&sequence, 1};
    for (const Accumulate mode : kHopperModes) {
      const Status status = cpu::paged_attention(description, mode, pool());
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
      EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
      EXPECT_NE(status.error().message.find("f32"), std::string::npos) << status.error().message;
    }
  }
}

}  // namespace
}  // namespace kv8::attention::test
