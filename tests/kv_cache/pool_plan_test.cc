#include "kv_cache/pool_plan.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "kv_cache/plans.h"
#include "kv_cache/sequence_pages.h"

namespace kv8::kv_cache {
namespace {

std::vector<BlockPool> make_pools(const PoolPlan& plan) {
  std::vector<BlockPool> pools;
  for (const int64_t pages : plan.pages) pools.push_back(BlockPool::create(pages).value());
  return pools;
}

// Gemma 3: five layers with a window for each that keeps everything.
CachePlan gemma() {
  std::vector<CacheLayer> layers(12, kv_layer(KvFormat::fp8, 512, 4, 256));
  layers[5].window = layers[11].window = 0;
  return plan_of(layers);
}

TEST(PoolPlan, SeveralSequencesPastTheirWindowsFit) {
  const CachePlan plan = gemma();
  const PoolRequest request{.sequences = 3, .tokens = 4000, .chunk = 300, .bytes = {}};
  const PoolPlan pool_plan = plan_pools(plan, request).value();
  EXPECT_EQ(pool_plan.capacity, 3 * 32 * kPageTokens);
  std::vector<BlockPool> pools = make_pools(pool_plan);
  std::vector<SequencePages> sequences;
  for (int i = 0; i < 3; ++i) sequences.emplace_back(plan, pools);
  for (int64_t done = 0; done < request.tokens;) {
    const int64_t chunk = std::min(request.chunk, request.tokens - done);
    for (SequencePages& sequence : sequences) {
      ASSERT_TRUE(sequence.reserve(chunk).has_value()) << "at " << done;
      sequence.advance(chunk);
    }
    done += chunk;
  }
}

TEST(PoolPlan, BytesAreThoseOfThePages) {
  const CachePlan plan = gemma();
  const PoolPlan pools =
      plan_pools(plan, {.sequences = 2, .tokens = 8192, .chunk = 512, .bytes = {}}).value();
  EXPECT_EQ(pools.bytes, 2 * plan.sequence_bytes(8192, 512));
}

// By hand: a token of the full layers costs 2 * 2 * 4 * 256 = 4,096 bytes, a page 512 KiB; one of the window
// layers 2.5 MiB, and a sequence in steps of one token holds 5 of them (512 tokens, and one page more).
TEST(PoolPlan, MemoryGoesToWindowsFirstAndThenToTokens) {
  const int64_t mib = 1 << 20;
  const PoolPlan pools =
      plan_pools(gemma(), {.sequences = 4, .tokens = 8192, .chunk = 1, .bytes = 100 * mib + 1000}).value();
  EXPECT_EQ(pools.pages, (std::vector<int64_t>{4 * 5, 100}));
  EXPECT_EQ(pools.capacity, 100 * kPageTokens);
  EXPECT_EQ(pools.bytes, 100 * mib);
}

TEST(PoolPlan, WhatDoesNotFitSaysWhatWould) {
  const int64_t mib = 1 << 20;
  const CachePlan plan = gemma();
  PoolRequest request{.sequences = 4, .tokens = 8192, .chunk = 1, .bytes = 60 * mib};
  const auto pools = plan_pools(plan, request);
  ASSERT_FALSE(pools.has_value());
  EXPECT_EQ(pools.error().code, ErrorCode::out_of_memory);
  // 10 MiB are left for 20 pages of 128 tokens.
  EXPECT_NE(pools.error().message.find("a context of 2560 would fit"), std::string::npos)
      << pools.error().message;
  request.tokens = 2560;
  EXPECT_TRUE(plan_pools(plan, request).has_value());
  request.tokens = 2561;
  EXPECT_FALSE(plan_pools(plan, request).has_value());
  request.bytes = 1000;
  EXPECT_NE(plan_pools(plan, request).error().message.find("not even one page"), std::string::npos);
}

// Whatever the model and the memory: no more bytes than given, one page more wouldn't fit, and every group
// has what all sequences (one, in groups that keep everything) need.
TEST(PoolPlan, UsesTheMemoryAndNoMore) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int refused = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<CacheLayer> layers = {kv_layer(KvFormat::bf16, 0, static_cast<int>(draw(1, 8)), 64)};
    for (int64_t i = draw(0, 4); i > 0; --i)
      layers.push_back(kv_layer(KvFormat::fp8, draw(0, 2) * 200, 2, 64));
    if (draw(0, 1) != 0) layers.push_back(latent_layer(KvFormat::fp8));
    if (draw(0, 1) != 0) layers.push_back(state_layer(draw(1, 100'000), static_cast<int>(draw(1, 3))));
    const CachePlan plan = plan_of(layers);
    const PoolRequest request{.sequences = draw(1, 5),
                              .tokens = draw(1, 5000),
                              .chunk = draw(1, 600),
                              .bytes = draw(1, 40'000'000)};
    const auto pools = plan_pools(plan, request);
    if (!pools) {
      ++refused;
      continue;
    }
    int64_t bytes = 0;
    int64_t next_page = 0;
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const CacheGroup& group = plan.groups[g];
      bytes += pools->pages[g] * group.page_bytes();
      next_page += group.keeps_everything() ? group.page_bytes() : 0;
      const int64_t sequences = group.keeps_everything() ? 1 : request.sequences;
      EXPECT_GE(pools->pages[g], sequences * group.pages_for(request.tokens, request.chunk));
    }
    EXPECT_EQ(pools->bytes, bytes);
    EXPECT_LE(bytes, *request.bytes);
    EXPECT_GT(bytes + next_page, *request.bytes);
    EXPECT_EQ(pools->capacity, pools->pages[0] * kPageTokens);
  }
  EXPECT_GT(refused, 20);
  EXPECT_LT(refused, 480);
}

// Without a layer that keeps everything memory doesn't limit the tokens.
TEST(PoolPlan, WindowsAndStatesAlone) {
  const CachePlan plan = plan_of({kv_layer(KvFormat::fp8, 128), state_layer(1000)});
  const PoolPlan pools =
      plan_pools(plan, {.sequences = 2, .tokens = 10'000, .chunk = 1, .bytes = 100'000'000}).value();
  EXPECT_EQ(pools.pages, (std::vector<int64_t>{2 * 2, 2}));
  EXPECT_EQ(pools.capacity, 20'000);
}

TEST(PoolPlan, LimitsAreErrors) {
  const CachePlan plan = plan_of({kv_layer(KvFormat::fp8, 0, 1, 1)});
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const std::vector<PoolRequest> bad = {
      {.sequences = 0, .tokens = 1, .chunk = 1, .bytes = {}},
      {.sequences = huge, .tokens = 1, .chunk = 1, .bytes = {}},
      {.sequences = 1, .tokens = 0, .chunk = 1, .bytes = {}},
      {.sequences = 1, .tokens = huge, .chunk = 1, .bytes = {}},
      {.sequences = 1, .tokens = 1, .chunk = 0, .bytes = {}},
      {.sequences = 1, .tokens = 1, .chunk = 1, .bytes = 0},
      {.sequences = 1, .tokens = 1, .chunk = 1, .bytes = huge},
  };
  for (const PoolRequest& request : bad) {
    const auto pools = plan_pools(plan, request);
    ASSERT_FALSE(pools.has_value());
    EXPECT_EQ(pools.error().code, ErrorCode::invalid_argument) << pools.error().message;
  }
  // More pages than have numbers, though their bytes would do.
  const auto pools =
      plan_pools(plan, {.sequences = 20, .tokens = kMaxSequenceTokens, .chunk = 1, .bytes = {}});
  ASSERT_FALSE(pools.has_value());
  EXPECT_EQ(pools.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(pools.error().message.find("can be numbered"), std::string::npos) << pools.error().message;
  // A context that a config asks for and no machine has.
  const auto config = plan_pools(plan_of(std::vector<CacheLayer>(32, kv_layer(KvFormat::bf16))),
                                 {.sequences = 1, .tokens = int64_t{1} << 38, .chunk = 512, .bytes = {}});
  ASSERT_FALSE(config.has_value());
}

}  // namespace
}  // namespace kv8::kv_cache
