#include "attention/cpu/layer_cache.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace kv8::attention::cpu {
namespace {

struct Cache {
  Cache(KvFormat format, int kv_heads, int head_dim, int pages)
      : k_scale(static_cast<size_t>(kv_heads), 1.0F), v_scale(static_cast<size_t>(kv_heads), 1.0F) {
    view.format = format;
    view.kv_heads = kv_heads;
    view.head_dim = head_dim;
    k.assign(static_cast<size_t>(view.page_bytes() * pages), std::byte{0x7F});  // NaN in e4m3
    v = k;
    view.k = k.data();
    view.v = v.data();
    view.k_scale = k_scale.data();
    view.v_scale = v_scale.data();
  }
  LayerCacheView view;
  std::vector<std::byte> k, v;
  std::vector<float> k_scale, v_scale;
};

// The largest relative error of rounding to the format, for numbers in its normal range.
double rounding(KvFormat format) {
  return format == KvFormat::fp8 ? 1.0 / 16 : format == KvFormat::bf16 ? 1.0 / 256 : 0.0;
}

TEST(LayerCache, ReadsBackWhatWasWritten) {
  for (const KvFormat format : {KvFormat::f32, KvFormat::bf16, KvFormat::fp8}) {
    constexpr int kHeads = 3, kDim = 80, kPages = 4;
    Cache cache(format, kHeads, kDim, kPages);
    if (format == KvFormat::fp8) {
      cache.k_scale = {0.5F, 0.03F, 7.0F};
      cache.v_scale = {2.0F, 0.01F, 1.0F};
    }
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(0.5F, 2.0F);
    std::vector<float> keys(kHeads * kDim), values(kHeads * kDim), read(kDim);
    for (float& x : keys) x = uniform(random) * (random() % 2 == 0 ? 1.0F : -1.0F);
    for (float& x : values) x = uniform(random);
    EXPECT_EQ(write_token(cache.view, 2, 77, keys.data(), values.data()), 0);
    for (int head = 0; head < kHeads; ++head) {
      read_keys(cache.view, 2, head, 77, 1, read.data());
      for (int d = 0; d < kDim; ++d)
        EXPECT_NEAR(read[d], keys[head * kDim + d], std::abs(keys[head * kDim + d]) * rounding(format));
      read_values(cache.view, 2, head, 77, 1, read.data());
      for (int d = 0; d < kDim; ++d)
        EXPECT_NEAR(read[d], values[head * kDim + d], std::abs(values[head * kDim + d]) * rounding(format));
    }
  }
}

TEST(LayerCache, WritesNothingBesideItsSlot) {
  Cache cache(KvFormat::fp8, 2, 64, 3);
  const std::vector<float> ones(128, 1.0F);
  write_token(cache.view, 1, 5, ones.data(), ones.data());
  int64_t written = 0;
  for (const std::byte byte : cache.k) written += byte != std::byte{0x7F} ? 1 : 0;
  EXPECT_EQ(written, 128);
  EXPECT_EQ(*cache.view.key(1, 1, 5), std::byte{0x38});  // 1.0 in e4m3
}

TEST(LayerCache, CountsSaturations) {
  Cache cache(KvFormat::fp8, 1, 64, 1);
  std::vector<float> keys(64, 1.0F), values(64, -1.0F), read(64);
  keys[3] = 500.0F;
  keys[4] = -1e9F;
  values[63] = 448.0F;  // the largest number itself is in range
  EXPECT_EQ(write_token(cache.view, 0, 0, keys.data(), values.data()), 2);
  read_keys(cache.view, 0, 0, 0, 1, read.data());
  EXPECT_EQ(read[3], 448.0F);
  EXPECT_EQ(read[4], -448.0F);
  cache.k_scale[0] = 1e9F / 448;
  EXPECT_EQ(write_token(cache.view, 0, 1, keys.data(), values.data()), 0);
}

}  // namespace
}  // namespace kv8::attention::cpu
