#include "formats/kv_scales.h"

#include <cstring>
#include <limits>
#include <list>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.h"
#include "format_files.h"

namespace kv8::formats {
namespace {

using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// Tensors whose bytes live here.
class Scales {
 public:
  Scales& add(std::string name, const std::vector<float>& values, Shape shape) {
    return add_bytes(std::move(name), values.data(), values.size() * sizeof(float), DType::f32, shape);
  }
  Scales& add(std::string name, float value) { return add(std::move(name), {value}, Shape({1})); }
  Scales& add_codes(std::string name, DType dtype, const std::vector<uint16_t>& codes) {
    return add_bytes(std::move(name), codes.data(), codes.size() * 2, dtype,
                     Shape({static_cast<int64_t>(codes.size())}));
  }

  Expected<KvScales> bind(const std::vector<int>& kv_heads) const {
    return bind_kv_scales(tensors_, kv_heads, "model.safetensors");
  }
  const std::vector<NamedTensor>& tensors() const { return tensors_; }

 private:
  Scales& add_bytes(std::string name, const void* data, size_t bytes, DType dtype, Shape shape) {
    std::vector<std::byte>& storage = storage_.emplace_back(bytes);
    if (bytes > 0) std::memcpy(storage.data(), data, bytes);
    tensors_.push_back({std::move(name), {dtype, shape, storage.data(), bytes}});
    return *this;
  }

  std::list<std::vector<std::byte>> storage_;
  std::vector<NamedTensor> tensors_;
};

TEST(KvScales, EverySpellingBinds) {
  const std::pair<const char*, const char*> spellings[] = {
      {"k_scale", "v_scale"},
      {"k_proj.k_scale", "v_proj.v_scale"},
      {"qkv_proj.k_scale", "qkv_proj.v_scale"},
      {"k_proj.output_scale", "v_proj.output_scale"},
  };
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model."}) {
    for (const auto& [k, v] : spellings) {
      const std::string layer = std::string(prefix) + "layers.1.self_attn.";
      const auto scales = Scales().add(layer + k, 0.25F).add(layer + v, 0.5F).bind({2, 2});
      ASSERT_TRUE(scales) << scales.error().message;
      EXPECT_FALSE(scales->layers[0]) << layer << k;
      ASSERT_TRUE(scales->layers[1]) << layer << k;
      EXPECT_THAT(scales->layers[1]->k, ElementsAre(0.25F));
      EXPECT_THAT(scales->layers[1]->v, ElementsAre(0.5F));
    }
  }
  const auto legacy = Scales().add("model.layers.0.self_attn.kv_scale", {0.125F}, Shape()).bind({2});
  ASSERT_TRUE(legacy) << legacy.error().message;
  EXPECT_THAT(legacy->layers[0]->k, ElementsAre(0.125F));
  EXPECT_THAT(legacy->layers[0]->v, ElementsAre(0.125F));
}

TEST(KvScales, PerHeadScalesAndTypes) {
  const auto scales =
      Scales()
          .add("model.layers.0.self_attn.k_scale", {1.0F, 2.0F, 3.0F}, Shape({3, 1, 1}))
          .add_codes("model.layers.0.self_attn.v_scale", DType::bf16, {0x3F80, 0x4000, 0x3E80})
          .add_codes("model.layers.1.self_attn.k_scale", DType::f16, {0x3C00})
          .add_codes("model.layers.1.self_attn.v_scale", DType::f16, {0x0001})
          .bind({3, 3});
  ASSERT_TRUE(scales) << scales.error().message;
  EXPECT_THAT(scales->layers[0]->k, ElementsAre(1.0F, 2.0F, 3.0F));
  EXPECT_THAT(scales->layers[0]->v, ElementsAre(1.0F, 2.0F, 0.25F));
  EXPECT_THAT(scales->layers[1]->k, ElementsAre(1.0F));
  EXPECT_THAT(scales->layers[1]->v, ElementsAre(0x1p-24F));
}

TEST(KvScales, MinusOneAndAbsenceMeanNone) {
  const auto absent = Scales().add("model.layers.0.mlp.down_proj.weight_scale", 0.5F).bind({2});
  ASSERT_TRUE(absent);
  EXPECT_TRUE(absent->empty());
  EXPECT_EQ(absent->layers.size(), 1U);
  const auto minus_one = Scales()
                             .add("model.layers.0.self_attn.k_scale", -1.0F)
                             .add("model.layers.0.self_attn.v_scale", -1.0F)
                             .bind({2});
  ASSERT_TRUE(minus_one);
  EXPECT_TRUE(minus_one->empty());
}

TEST(KvScales, ScalesOfQAreCountedAndTheirAbsenceIsNormal) {
  const auto scales = Scales()
                          .add("model.layers.0.self_attn.k_scale", 1.0F)
                          .add("model.layers.0.self_attn.v_scale", 1.0F)
                          .add("model.layers.0.self_attn.q_scale", 3.0F)
                          .bind({2});
  ASSERT_TRUE(scales) << scales.error().message;
  EXPECT_EQ(scales->q_scales, 1);
  EXPECT_THAT(scales->layers[0]->k, ElementsAre(1.0F));
}

TEST(KvScales, WhatCannotBeIsAnErrorThatNamesTheTensor) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto expect = [](const Scales& tensors, const std::vector<int>& kv_heads, const char* message) {
    const auto scales = tensors.bind(kv_heads);
    ASSERT_FALSE(scales) << message;
    EXPECT_EQ(scales.error().code, ErrorCode::corrupt_data);
    EXPECT_THAT(scales.error().message, HasSubstr("model.safetensors"));
    EXPECT_THAT(scales.error().message, HasSubstr(message));
  };
  const std::string k = "model.layers.0.self_attn.k_scale";
  const std::string v = "model.layers.0.self_attn.v_scale";
  for (const float bad : {0.0F, -0.5F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    expect(Scales().add(k, bad).add(v, 1.0F), {2}, "self_attn.k_scale: ");
    expect(Scales().add(k, {1.0F, bad}, Shape({2})).add(v, 1.0F), {2}, "self_attn.k_scale: ");
  }
  expect(Scales().add(k, {1.0F, -1.0F}, Shape({2})).add(v, 1.0F), {2}, "self_attn.k_scale: -1");
  expect(Scales().add(k, 1.0F), {2}, "self_attn.k_scale is there, but no scale of V");
  expect(Scales().add(v, 1.0F), {2}, "self_attn.v_scale is there, but no scale of K");
  expect(Scales().add(k, -1.0F).add(v, 1.0F), {2}, "self_attn.v_scale is there, but no scale of K");
  expect(Scales().add(k, {1.0F, 1.0F, 1.0F}, Shape({3})).add(v, 1.0F), {2},
         "shape [3]; expected one number or one for each of 2");
  expect(Scales().add(k, {1.0F, 1.0F, 1.0F, 1.0F}, Shape({2, 2})).add(v, 1.0F), {4}, "shape [2, 2]");
  expect(Scales().add(k, {}, Shape({0})).add(v, 1.0F), {2}, "shape [0]");
  expect(Scales().add_codes(k, DType::i16, {1}).add(v, 1.0F), {2}, "dtype i16");
  expect(Scales().add(k, 1.0F).add(v, 1.0F).add("model.layers.0.self_attn.k_proj.k_scale", 1.0F), {2},
         "the same scale is given by model.layers.0.self_attn.k_scale too");
  expect(Scales().add(k, 1.0F).add("model.layers.0.self_attn.kv_scale", 1.0F), {2},
         "kv_scale: the same scale");
}

TEST(KvScales, ScalesThatBelongToNoLayerAreNamed) {
  for (const char* name :
       {"model.layers.2.self_attn.k_scale", "model.layers.1.self_attn.v_scale",
        "vision.layers.0.self_attn.k_scale", "model.layers.x.self_attn.v_scale",
        "model.layers.0.attention.kv_scale", "k_scale", "model.layers.99999999999999999999.self_attn.k_scale",
        "model.layers.0.self_attn.extra.k_proj.output_scale"}) {
    const auto scales = Scales().add(name, 1.0F).bind({2, 0});  // the second layer has no KV cache
    ASSERT_FALSE(scales) << name;
    EXPECT_THAT(scales.error().message, HasSubstr(name));
    EXPECT_THAT(scales.error().message, HasSubstr("belong to no layer"));
  }
}

TEST(KvScales, FromTheModelFixtures) {
  for (const char* family : {"llama_fp8_kv_tensor", "llama_fp8_kv_head", "llama"}) {
    const auto checkpoint = Checkpoint::open(test::fixtures() / "models" / family);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto layers = checkpoint->config()["num_hidden_layers"].get<size_t>();
    const int heads = checkpoint->config()["num_key_value_heads"].get<int>();
    const std::vector<int> kv_heads(layers, heads);
    const auto scales = find_kv_scales(*checkpoint, kv_heads);
    ASSERT_TRUE(scales) << scales.error().message;
    ASSERT_EQ(scales->layers.size(), layers);
    for (size_t layer = 0; layer < layers; ++layer) {
      ASSERT_EQ(scales->layers[layer].has_value(), family != std::string("llama")) << family;
      if (!scales->layers[layer]) continue;
      const TensorView stored = *checkpoint->tensor(fmt::format("model.layers.{}.self_attn.k_scale", layer));
      EXPECT_EQ(static_cast<int64_t>(scales->layers[layer]->k.size()), stored.shape.elements());
      EXPECT_EQ(std::memcmp(scales->layers[layer]->k.data(), stored.data, stored.bytes), 0);
    }
    // A model of one layer less leaves scales over.
    const auto fewer = find_kv_scales(*checkpoint, std::vector<int>(layers - 1, heads));
    EXPECT_EQ(fewer.has_value(), family == std::string("llama"));
  }
}

TEST(KvScales, FromAFileOfTheirOwn) {
  const TemporaryFolder folder;
  const Scales scales = std::move(Scales()
                                      .add("model.layers.0.self_attn.k_scale", {0.5F, 0.25F}, Shape({2}))
                                      .add("model.layers.0.self_attn.v_scale", {2.0F, 4.0F}, Shape({2})));
  ASSERT_TRUE(write_safetensors(folder / "kv_scales.safetensors", scales.tensors()));
  const std::vector<int> kv_heads = {2};
  const auto read = read_kv_scales(folder / "kv_scales.safetensors", kv_heads);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_THAT(read->layers[0]->k, ElementsAre(0.5F, 0.25F));
  EXPECT_THAT(read->layers[0]->v, ElementsAre(2.0F, 4.0F));
}

}  // namespace
}  // namespace kv8::formats
