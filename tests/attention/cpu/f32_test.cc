// The CPU's default mode, and `exact`, against float64 over every mask, format, group and head size.
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "attention/cpu/attention_case.h"

namespace kv8::attention::test {
namespace {

constexpr double kF32Bound = 3e-6;

ThreadPool& pool() {
  static ThreadPool threads(2);
  return threads;
}

void expect_right(const CaseOptions& options, const std::string& what, int64_t chunk = 0) {
  AttentionCase problem(options);
  problem.store();
  const auto right = problem.reference();
  EXPECT_LT(relative_error(problem.run(Accumulate::f32, pool(), chunk), right), kF32Bound) << what;
  EXPECT_LT(relative_error(problem.run(Accumulate::exact, pool(), chunk), right), 1e-6) << what;
}

TEST(F32Attention, EveryFormatHeadSizeAndGroup) {
  uint32_t seed = 100;
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16, KvFormat::fp8}) {
    for (const int head_dim : {64, 80, 96, 100, 128, 256}) {
      for (const int group : {1, 2, 3, 4, 5, 7, 8, 16}) {
        CaseOptions options{.format = format, .q_heads = group * 2, .kv_heads = 2, .head_dim = head_dim};
        options.tokens = 130 + seed % (kSanitized ? 17 : 117);
        options.queries = 1 + seed % 3;
        options.k_scale = 0.3F;
        options.v_scale = 1.7F;
        options.seed = ++seed;
        expect_right(options, fmt::format("{} head_dim {} group {} queries {}", kv_cache::to_string(format),
                                          head_dim, group, options.queries));
      }
    }
  }
}

TEST(F32Attention, EveryMask) {
  uint32_t seed = 500;
  for (const int64_t window : {0, 1, 5, 127, 128, 129, 200}) {
    for (const float cap : {0.0F, 3.0F}) {
      for (const bool sinks : {false, true}) {
        for (const int64_t queries : {1, 2, 17, kSanitized ? 60 : 331}) {
          CaseOptions options{.q_heads = 3, .kv_heads = 1, .tokens = 331, .queries = queries};
          options.window = window;
          options.cap = cap;
          options.sinks = sinks;
          options.q_deviation = 2.0F;
          options.seed = ++seed;
          expect_right(options,
                       fmt::format("window {} cap {} sinks {} queries {}", window, cap, sinks, queries));
        }
      }
    }
  }
}

// Any chunk size runs, and agrees.
TEST(F32Attention, EveryChunkSize) {
  CaseOptions options{.q_heads = 6, .kv_heads = 2, .head_dim = 64, .tokens = 141, .queries = 141};
  AttentionCase problem(options);
  problem.store();
  const auto right = problem.reference();
  for (int64_t chunk = 1; chunk <= 141; chunk += chunk < 20 ? 1 : 13)
    EXPECT_LT(relative_error(problem.run(Accumulate::f32, pool(), chunk), right), kF32Bound) << chunk;
}

// Decode, chunked and one-shot prefill agree, over many tiles and splits.
TEST(F32Attention, DecodeChunkedAndOneShotAgree) {
  constexpr int64_t kTokens = kSanitized ? 1001 : 3001;
  for (const int kv_heads : {1, 3}) {
    CaseOptions options{.q_heads = 3 * kv_heads, .kv_heads = kv_heads, .tokens = kTokens, .queries = 60};
    AttentionCase problem(options);
    problem.store();
    const auto one_shot = problem.run(Accumulate::f32, pool());
    EXPECT_LT(relative_error(problem.run(Accumulate::f32, pool(), 1), one_shot), 1e-6);
    EXPECT_LT(relative_error(problem.run(Accumulate::f32, pool(), 7), one_shot), 1e-6);
    EXPECT_LT(relative_error(one_shot, problem.reference()), kF32Bound);
  }
}

TEST(F32Attention, ResultsDontDependOnTheThreads) {
  CaseOptions options{.q_heads = 9, .kv_heads = 3, .tokens = 2000, .queries = 1};
  AttentionCase problem(options);
  problem.store();
  ThreadPool one(1);
  ThreadPool four(4);
  EXPECT_EQ(problem.run(Accumulate::f32, one), problem.run(Accumulate::f32, four));
}

// What was never written is never read, whatever it is.
TEST(F32Attention, PoisonedSlotsStayOut) {
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16, KvFormat::fp8}) {
    for (const int64_t queries : {1, 40}) {
      CaseOptions options{.format = format, .tokens = 129 + queries, .queries = queries};
      options.poison = 0x7F;
      AttentionCase first(options);
      first.store();
      options.poison = 0xFF;
      AttentionCase second(options);
      second.store();
      const auto out = first.run(Accumulate::f32, pool());
      EXPECT_EQ(out, second.run(Accumulate::f32, pool()));
      EXPECT_LT(relative_error(out, first.reference()), kF32Bound);
    }
  }
}

// The kernels' exact widening reads a NaN code as +-480 unless it is looked for.
TEST(F32Attention, NanInTheCacheReachesTheOutput) {
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8}) {
    for (const int q_heads : {2, 12}) {
      for (const bool in_values : {false, true}) {
        CaseOptions options{.format = format, .q_heads = q_heads, .tokens = 300};
        AttentionCase problem(options);
        auto& where = in_values ? problem.values() : problem.keys();
        where[137 * 2 * 64 + 64 + 5] = std::numeric_limits<float>::quiet_NaN();  // KV head 1, dim 5
        problem.store();
        const auto out = problem.run(Accumulate::f32, pool());
        EXPECT_TRUE(std::isnan(out[(q_heads - 1) * 64 + 5]));
        EXPECT_FALSE(std::isnan(out[5]));  // KV head 0 has none
      }
    }
  }
}

// K * s stored with scale s changes nothing but rounding, and powers of two not even that.
TEST(F32Attention, ScalesCancel) {
  for (const int64_t queries : {1, 40}) {
    CaseOptions options{.tokens = 300, .queries = queries};
    AttentionCase plain(options);
    plain.store();
    AttentionCase scaled(options);
    for (int head = 0; head < 2; ++head) {
      const float k_factor = head == 0 ? 64.0F : 0.25F;
      const float v_factor = head == 0 ? 0.125F : 16.0F;
      for (int64_t token = 0; token < options.tokens; ++token) {
        for (int i = 0; i < 64; ++i) {
          scaled.keys()[(token * 2 + head) * 64 + i] *= k_factor;
          scaled.values()[(token * 2 + head) * 64 + i] *= v_factor;
        }
      }
      scaled.k_scale()[head] *= k_factor;
      scaled.v_scale()[head] *= v_factor;
    }
    scaled.store();
    auto expected = plain.run(Accumulate::f32, pool());
    // q . (64 k) with q / 64: the query takes the factor back.
    for (int64_t query = 0; query < queries; ++query) {
      for (int head = 0; head < options.q_heads; ++head) {
        for (int i = 0; i < 64; ++i) {
          const size_t at = (query * options.q_heads + head) * 64 + i;
          scaled.q()[at] /= head < 3 ? 64.0F : 0.25F;
          expected[at] *= head < 3 ? 0.125F : 16.0F;
        }
      }
    }
    EXPECT_LT(relative_error(scaled.run(Accumulate::f32, pool()), expected), 1e-6);
  }
}

// The scale read is the one in the cache's array, now.
TEST(F32Attention, AChangedScaleChangesTheOutput) {
  CaseOptions options{.tokens = 200};
  AttentionCase problem(options);
  problem.store();
  for (const Accumulate mode :
       {Accumulate::f32, Accumulate::exact, Accumulate::tile, Accumulate::two_level, Accumulate::single}) {
    const auto before = problem.run(mode, pool());
    problem.v_scale()[0] *= 3.0F;
    auto after = problem.run(mode, pool());
    problem.v_scale()[0] /= 3.0F;
    for (int i = 0; i < 3 * 64; ++i) after[i] /= 3.0F;
    EXPECT_LT(relative_error(after, before), 1e-6) << to_string(mode);
    problem.k_scale()[0] *= 2.0F;
    EXPECT_GT(relative_error(problem.run(mode, pool()), before), 0.05) << to_string(mode);
    problem.k_scale()[0] /= 2.0F;
  }
}

// Sinks are logits, and k_scale doesn't touch them.
TEST(F32Attention, SinksIgnoreTheKeyScale) {
  for (const float k_scale : {0.01F, 100.0F}) {
    CaseOptions options{.sinks = true, .k_scale = k_scale};
    AttentionCase problem(options);
    for (float& key : problem.keys()) key *= k_scale;
    for (float& q : problem.q()) q /= k_scale;
    problem.store();
    const auto right = problem.reference();
    EXPECT_LT(relative_error(problem.run(Accumulate::f32, pool()), right), 1e-5);
    for (const Accumulate mode : {Accumulate::tile, Accumulate::two_level, Accumulate::single})
      EXPECT_LT(relative_error(problem.run(mode, pool()), right), 0.05) << to_string(mode);
  }
}

TEST(F32Attention, ManySequencesWithStridedRows) {
  constexpr int kSequences = 5;
  constexpr int kStride = 6 * 64 + 24;
  std::vector<AttentionCase> cases;
  for (int i = 0; i < kSequences; ++i) {
    CaseOptions options{.tokens = 100 + 177 * i, .queries = 1 + 3 * i, .seed = static_cast<uint32_t>(i + 1)};
    cases.emplace_back(options);
    cases.back().store();
  }
  // One problem per sequence, rows padded to a stride: the cache views differ, so run them one by one into
  // one matrix.
  int64_t rows = 0;
  for (const auto& item : cases) rows += item.options().queries;
  std::vector<float> q(rows * kStride, 7e7F);
  std::vector<float> out(rows * kStride, -1.0F);
  int64_t begin = 0;
  for (auto& item : cases) {
    const int64_t count = item.options().queries;
    for (int64_t row = 0; row < count; ++row)
      std::copy_n(&item.q()[row * 384], 384, &q[(begin + row) * kStride]);
    const SequenceChunk sequence{begin, count, item.options().tokens - count, item.page_table().data()};
    AttentionProblem problem = item.describe(out.data());
    problem.q = q.data();
    problem.q_stride = problem.out_stride = kStride;
    problem.sequences = {&sequence, 1};
    ASSERT_TRUE(cpu::paged_attention(problem, Accumulate::f32, pool()));
    const auto right = item.reference();
    for (int64_t row = 0; row < count; ++row) {
      const std::vector<float> got(&out[(begin + row) * kStride], &out[(begin + row) * kStride] + 384);
      const std::vector<double> expected(&right[row * 384], &right[row * 384] + 384);
      EXPECT_LT(relative_error(got, expected), kF32Bound);
      EXPECT_EQ(out[(begin + row) * kStride + 384], -1.0F);  // the padding is not written
    }
    begin += count;
  }
}

// Several sequences of one cache in one call: the same keys, cut at different lengths.
TEST(F32Attention, ABatchEqualsItsSequencesOneByOne) {
  CaseOptions options{.q_heads = 6, .kv_heads = 2, .tokens = 700, .queries = 10};
  AttentionCase problem(options);
  problem.store();
  const std::vector<SequenceChunk> sequences = {{0, 1, 699, problem.page_table().data()},
                                                {1, 1, 3, problem.page_table().data()},
                                                {2, 5, 300, problem.page_table().data()},
                                                {7, 3, 0, problem.page_table().data()}};
  std::vector<float> together(problem.q().size());
  AttentionProblem batch = problem.describe(together.data());
  batch.sequences = sequences;
  ASSERT_TRUE(cpu::paged_attention(batch, Accumulate::f32, pool()));
  std::vector<float> apart(problem.q().size());
  AttentionProblem single = problem.describe(apart.data());
  for (const SequenceChunk& sequence : sequences) {
    single.sequences = {&sequence, 1};
    ASSERT_TRUE(cpu::paged_attention(single, Accumulate::exact, pool()));
  }
  EXPECT_LT(relative_error(together, apart), kF32Bound);
}

// Scores of +-1000 and queries far above 1: no overflow inside.
TEST(F32Attention, LargeNumbersStayFinite) {
  for (const int64_t queries : {1, 20}) {
    CaseOptions options{.tokens = 300, .queries = queries, .q_deviation = 3000.0F};
    options.k_scale = 4.0F;
    options.v_scale = 300.0F;
    AttentionCase problem(options);
    for (float& key : problem.keys()) key *= 300.0F;
    for (float& value : problem.values()) value *= 1e4F;
    problem.store();
    EXPECT_LT(relative_error(problem.run(Accumulate::f32, pool()), problem.reference()), 1e-2);
  }
}

class F32OnTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(F32OnTarget, IsRight) {
  uint32_t seed = 900;
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16, KvFormat::fp8}) {
    for (const int head_dim : {64, 100}) {
      for (const int group : {1, 2, 3, 4, 7}) {
        CaseOptions options{.format = format, .q_heads = group, .kv_heads = 1, .head_dim = head_dim};
        options.tokens = 290;
        options.queries = 1 + seed % 13;
        options.window = 201;
        options.cap = 5.0F;
        options.sinks = true;
        options.seed = ++seed;
        expect_right(options, fmt::format("{} {} {}", kv_cache::to_string(format), head_dim, group));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, F32OnTarget, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace kv8::attention::test
