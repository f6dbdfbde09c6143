#include "kv_cache/cache_plan.h"

#include <gtest/gtest.h>

namespace kv8::kv_cache {
namespace {

CacheLayer layer_of(KvFormat format, int64_t window = 0, int kv_heads = 8, int head_dim = 128) {
  CacheLayer layer;
  layer.format = format;
  layer.kv_heads = kv_heads;
  layer.head_dim = head_dim;
  layer.window = window;
  return layer;
}

// DESIGN: 2 * kv_heads * head_dim bytes a token and layer in FP8. Llama-3.1-8B: 131,072 B/token in BF16.
TEST(CachePlan, LlamaBytesPerToken) {
  const auto bf16 = make_cache_plan(std::vector<CacheLayer>(32, layer_of(KvFormat::bf16))).value();
  const auto fp8 = make_cache_plan(std::vector<CacheLayer>(32, layer_of(KvFormat::fp8))).value();
  EXPECT_EQ(bf16.token_bytes(), 131'072);
  EXPECT_EQ(fp8.token_bytes(), 65'536);
  EXPECT_EQ(fp8.scale_bytes(), 32 * 2 * 8 * 4);
}

// REQUIREMENTS E8: the token capacity of FP8 against BF16 is 2.0 within 2%, scales counted.
TEST(CachePlan, CapacityOfFp8IsTwiceThatOfBf16) {
  const auto bf16 = make_cache_plan(std::vector<CacheLayer>(32, layer_of(KvFormat::bf16))).value();
  const auto fp8 = make_cache_plan(std::vector<CacheLayer>(32, layer_of(KvFormat::fp8))).value();
  const double memory = 1e9;
  const double tokens_bf16 = memory / static_cast<double>(bf16.sequence_bytes(kPageTokens, 1));
  const double tokens_fp8 = (memory - static_cast<double>(fp8.scale_bytes())) /
                            static_cast<double>(fp8.sequence_bytes(kPageTokens, 1));
  EXPECT_NEAR(tokens_fp8 / tokens_bf16, 2.0, 0.04);
}

TEST(CachePlan, GroupsLayersByWindow) {
  const auto plan =
      make_cache_plan({layer_of(KvFormat::bf16, 24), layer_of(KvFormat::fp8), layer_of(KvFormat::bf16, 24)})
          .value();
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(plan.groups[1].layers, (std::vector<int>{1}));
  EXPECT_EQ(plan.layers[2].group, 0);
  EXPECT_EQ(plan.token_bytes(), 2 * 8 * 128);  // the full layer alone
  EXPECT_EQ(plan.window_bytes(), 24 * 2 * 2 * 8 * 128 * 2);
}

TEST(CachePlan, WindowGroupHoldsNoMoreThanItsWindow) {
  const auto plan = make_cache_plan({layer_of(KvFormat::bf16, 512)}).value();
  EXPECT_EQ(plan.groups[0].pages_for(100, 1), 1);
  EXPECT_EQ(plan.groups[0].pages_for(1'000'000, 1), 512 / kPageTokens + 1);
  EXPECT_EQ(plan.groups[0].pages_for(1'000'000, 512), (512 + 511 + kPageTokens - 1) / kPageTokens + 1);
}

TEST(CachePlan, SharedLayersCostNothing) {
  auto layers = std::vector<CacheLayer>(2, layer_of(KvFormat::fp8));
  layers[1].shared_with = 0;
  const auto plan = make_cache_plan(layers).value();
  EXPECT_EQ(plan.token_bytes(), 2 * 8 * 128);
  EXPECT_EQ(plan.layers[1].group, plan.layers[0].group);
}

TEST(CachePlan, RefusesSharingForward) {
  auto layers = std::vector<CacheLayer>(2, layer_of(KvFormat::fp8));
  layers[0].shared_with = 1;
  const auto plan = make_cache_plan(layers);
  ASSERT_FALSE(plan.has_value());
  EXPECT_NE(plan.error().message.find("cache layer 0"), std::string::npos) << plan.error().message;
}

TEST(SkipLayers, ByWindowAndByNumber) {
  std::vector<CacheLayer> layers = {layer_of(KvFormat::fp8, 24), layer_of(KvFormat::fp8),
                                    layer_of(KvFormat::fp8)};
  ASSERT_TRUE(apply_skip_layers("sliding_window,2", layers).has_value());
  EXPECT_EQ(layers[0].format, KvFormat::bf16);
  EXPECT_EQ(layers[1].format, KvFormat::fp8);
  EXPECT_EQ(layers[2].format, KvFormat::bf16);
}

TEST(SkipLayers, NamesWhatItDoesNotKnow) {
  for (const char* text : {"3", "-1", "1x", "sliding", ",", "99999999999999999999", "0,,1"}) {
    std::vector<CacheLayer> layers(3, layer_of(KvFormat::fp8));
    EXPECT_FALSE(apply_skip_layers(text, layers).has_value()) << text;
  }
}

}  // namespace
}  // namespace kv8::kv_cache
