#include "kv_cache/cache_plan.h"

#include <limits>

#include <gtest/gtest.h>

#include "kv_cache/plans.h"

namespace kv8::kv_cache {
namespace {

// 2 * kv_heads * head_dim bytes a token and layer in FP8. Llama-3.1-8B: 131,072 B/token in BF16.
TEST(CachePlan, LlamaBytesPerToken) {
  const auto bf16 = make_cache_plan(std::vector<CacheLayer>(32, kv_layer(KvFormat::bf16))).value();
  const auto fp8 = make_cache_plan(std::vector<CacheLayer>(32, kv_layer(KvFormat::fp8))).value();
  EXPECT_EQ(bf16.token_bytes(), 131'072);
  EXPECT_EQ(fp8.token_bytes(), 65'536);
  EXPECT_EQ(fp8.scale_bytes(), 32 * 2 * 8 * 4);
}

// The token capacity of FP8 against BF16 is 2.0 within 2%, scales counted.
TEST(CachePlan, CapacityOfFp8IsTwiceThatOfBf16) {
  const auto bf16 = make_cache_plan(std::vector<CacheLayer>(32, kv_layer(KvFormat::bf16))).value();
  const auto fp8 = make_cache_plan(std::vector<CacheLayer>(32, kv_layer(KvFormat::fp8))).value();
  const double memory = 1e9;
  const double tokens_bf16 = memory / static_cast<double>(bf16.sequence_bytes(kPageTokens, 1));
  const double tokens_fp8 = (memory - static_cast<double>(fp8.scale_bytes())) /
                            static_cast<double>(fp8.sequence_bytes(kPageTokens, 1));
  EXPECT_NEAR(tokens_fp8 / tokens_bf16, 2.0, 0.04);
}

TEST(CachePlan, GroupsLayersByWindow) {
  const auto plan =
      make_cache_plan({kv_layer(KvFormat::bf16, 24), kv_layer(KvFormat::fp8), kv_layer(KvFormat::bf16, 24)})
          .value();
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(plan.groups[1].layers, (std::vector<int>{1}));
  EXPECT_EQ(plan.layers[2].group, 0);
  EXPECT_EQ(plan.token_bytes(), 2 * 8 * 128);  // the full layer alone
  EXPECT_EQ(plan.window_bytes(), 24 * 2 * 2 * 8 * 128 * 2);
}

TEST(CachePlan, WindowGroupHoldsNoMoreThanItsWindow) {
  const auto plan = make_cache_plan({kv_layer(KvFormat::bf16, 512)}).value();
  EXPECT_EQ(plan.groups[0].pages_for(100, 1), 1);
  EXPECT_EQ(plan.groups[0].pages_for(1'000'000, 1), 512 / kPageTokens + 1);
  EXPECT_EQ(plan.groups[0].pages_for(1'000'000, 512), (512 + 511 + kPageTokens - 1) / kPageTokens + 1);
}

TEST(CachePlan, NoWindowOrChunkOverflows) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const auto plan = make_cache_plan({kv_layer(KvFormat::fp8, huge), kv_layer(KvFormat::fp8)}).value();
  EXPECT_EQ(plan.groups[0].pages_for(1000, huge), 8);
  EXPECT_EQ(plan.groups[0].pages_for(0, 0), 0);
  EXPECT_EQ(plan.groups[1].pages_for(huge, huge), huge / kPageTokens + 1);
}

// DeepSeek-V3: 61 layers of 576 numbers a token, 70,272 bytes in BF16.
TEST(CachePlan, LatentLayersStoreKeysAlone) {
  const auto bf16 = make_cache_plan(std::vector<CacheLayer>(61, latent_layer(KvFormat::bf16))).value();
  const auto fp8 = make_cache_plan(std::vector<CacheLayer>(61, latent_layer(KvFormat::fp8))).value();
  EXPECT_EQ(bf16.token_bytes(), 70'272);
  EXPECT_EQ(fp8.token_bytes(), 35'136);
  EXPECT_EQ(fp8.scale_bytes(), 61 * 2 * 4);
  EXPECT_EQ(bf16.groups.at(0).page_bytes(), 70'272 * 128);
  EXPECT_EQ(bf16.sequence_bytes(129, 1), 2 * 70'272 * 128);
}

TEST(CachePlan, KeysAndValuesOfDifferentSizes) {
  CacheLayer layer = kv_layer(KvFormat::bf16);
  layer.k_dim = 192;
  const auto plan = make_cache_plan({layer}).value();
  EXPECT_EQ(plan.layers[0].key_bytes(), 8 * 192 * 2);
  EXPECT_EQ(plan.layers[0].value_bytes(), 8 * 128 * 2);
  EXPECT_EQ(plan.token_bytes(), 8 * (192 + 128) * 2);
}

// A hybrid: three recurrent layers for each layer of attention.
TEST(CachePlan, StatesCostTheSameAtAnyLength) {
  const auto plan = make_cache_plan({state_layer(1000), state_layer(3000), kv_layer(KvFormat::fp8, 0, 2, 64),
                                     state_layer(500, 2)})
                        .value();
  ASSERT_EQ(plan.groups.size(), 3U);  // states of one slot, attention, states of two slots
  EXPECT_EQ(plan.groups[0].layers, (std::vector<int>{0, 1}));
  EXPECT_EQ(plan.groups[0].page_bytes(), 4000);
  EXPECT_EQ(plan.groups[2].pages_for(1'000'000, 512), 2);
  EXPECT_EQ(plan.groups[2].pages_for(0, 512), 0);
  EXPECT_FALSE(plan.groups[0].keeps_everything());
  EXPECT_TRUE(plan.groups[1].keeps_everything());
  EXPECT_EQ(plan.token_bytes(), 2 * 2 * 64);
  EXPECT_EQ(plan.window_bytes(), 0);
  EXPECT_EQ(plan.state_bytes(), 4000 + 2 * 500);
  EXPECT_EQ(plan.scale_bytes(), 2 * 2 * 4);
  EXPECT_EQ(plan.sequence_bytes(1, 1), 4000 + 1000 + 256 * 128);
  EXPECT_EQ(plan.sequence_bytes(1280, 1), 4000 + 1000 + 256 * 1280);
}

TEST(CachePlan, KindsDoNotShareGroups) {
  const auto plan = make_cache_plan({kv_layer(KvFormat::fp8), latent_layer(KvFormat::fp8),
                                     kv_layer(KvFormat::fp8, 128), state_layer(64)})
                        .value();
  EXPECT_EQ(plan.groups.size(), 4U);
}

TEST(CachePlan, RefusesSizesThatMakeNoSense) {
  std::vector<CacheLayer> bad(10, kv_layer(KvFormat::fp8));
  bad[0].kv_heads = 0;
  bad[1].k_dim = 1 << 30;
  bad[2].v_dim = -1;
  bad[3].window = -1;
  bad[4].slots = 1;
  bad[5] = latent_layer(KvFormat::fp8);
  bad[5].v_dim = 577;
  bad[6] = latent_layer(KvFormat::fp8);
  bad[6].kv_heads = 2;
  bad[7] = state_layer(0);
  bad[8] = state_layer(std::numeric_limits<int64_t>::max());
  bad[9] = state_layer(64);
  bad[9].window = 128;
  for (size_t i = 0; i < bad.size(); ++i) {
    const auto plan = make_cache_plan({kv_layer(KvFormat::fp8), bad[i]});
    ASSERT_FALSE(plan.has_value()) << i;
    EXPECT_EQ(plan.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(plan.error().message.find("cache layer 1"), std::string::npos) << plan.error().message;
  }
}

TEST(CachePlan, SharedLayersCostNothing) {
  auto layers = std::vector<CacheLayer>(2, kv_layer(KvFormat::fp8));
  layers[1].shared_with = 0;
  const auto plan = make_cache_plan(layers).value();
  EXPECT_EQ(plan.token_bytes(), 2 * 8 * 128);
  EXPECT_EQ(plan.layers[1].group, plan.layers[0].group);
}

TEST(CachePlan, RefusesSharingForward) {
  auto layers = std::vector<CacheLayer>(2, kv_layer(KvFormat::fp8));
  layers[0].shared_with = 1;
  const auto plan = make_cache_plan(layers);
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("cache layer 0"), std::string::npos) << plan.error().message;
}

TEST(CachePlan, RefusesSharingAnotherKind) {
  std::vector<CacheLayer> layers = {latent_layer(KvFormat::fp8), kv_layer(KvFormat::fp8)};
  layers[1].shared_with = 0;
  EXPECT_FALSE(make_cache_plan(layers).has_value());
}

TEST(SkipLayers, ByWindowAndByNumber) {
  std::vector<CacheLayer> layers = {kv_layer(KvFormat::fp8, 24), kv_layer(KvFormat::fp8),
                                    kv_layer(KvFormat::fp8)};
  ASSERT_TRUE(apply_skip_layers("sliding_window,2", layers).has_value());
  EXPECT_EQ(layers[0].format, KvFormat::bf16);
  EXPECT_EQ(layers[1].format, KvFormat::fp8);
  EXPECT_EQ(layers[2].format, KvFormat::bf16);
}

TEST(SkipLayers, NamesWhatItDoesNotKnow) {
  for (const char* text : {"3", "-1", "1x", "sliding", ",", "99999999999999999999", "0,,1"}) {
    std::vector<CacheLayer> layers(3, kv_layer(KvFormat::fp8));
    EXPECT_FALSE(apply_skip_layers(text, layers).has_value()) << text;
  }
}

}  // namespace
}  // namespace kv8::kv_cache
