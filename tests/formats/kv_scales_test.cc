#include "formats/kv_scales.h"

#include <algorithm>
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

// What other programs write after "self_attn.": the table of the code must say the same, no more and no less.
constexpr struct {
  const char* k;
  const char* v;  // the same as k where one number is for both
  const char* q;  // empty: none is written
} kWritten[] = {
    {"k_scale", "v_scale", "q_scale"},                                      // llm-compressor
    {"attn.k_scale", "attn.v_scale", "attn.q_scale"},                       // vLLM's own layer
    {"_k_scale", "_v_scale", "_q_scale"},                                   // its buffers
    {"attn._k_scale", "attn._v_scale", "attn._q_scale"},                    //
    {"k_proj.k_scale", "v_proj.v_scale", "q_proj.q_scale"},                 // ModelOpt
    {"qkv_proj.k_scale", "qkv_proj.v_scale", "qkv_proj.q_scale"},           // the same, fused
    {"k_proj.output_scale", "v_proj.output_scale", "q_proj.output_scale"},  // Quark
    {"k_cache_scale", "v_cache_scale", ""},                                 // Gemma
    {"kv_scale", "kv_scale", ""},                                           // AutoFP8
    {"attn.kv_scale", "attn.kv_scale", ""},
    {"kv_cache_scale", "kv_cache_scale", ""},
    {"kv_cache_scaling_factor", "kv_cache_scaling_factor", ""},
};
constexpr const char* kWrappers[] = {"model.", "model.language_model.", "language_model.model.", ""};

TEST(KvScales, EverySpellingBinds) {
  size_t names = 0;
  for (const auto& [k, v, q] : kWritten) {
    const bool both = k == std::string(v);
    names += 1U + (both ? 0 : 1) + (*q != '\0' ? 1 : 0);
    for (const std::string wrapper : kWrappers) {
      const std::string layer = wrapper + "layers.1.self_attn.";
      Scales tensors;
      tensors.add(layer + k, 0.25F);
      if (!both) tensors.add(layer + v, 0.5F);
      if (*q != '\0') tensors.add(layer + q, 3.0F);
      const auto scales = tensors.bind({2, 2});
      ASSERT_TRUE(scales) << scales.error().message;
      EXPECT_FALSE(scales->layers[0]) << layer << k;
      ASSERT_TRUE(scales->layers[1]) << layer << k;
      EXPECT_THAT(scales->layers[1]->k, ElementsAre(0.25F)) << layer << k;
      EXPECT_THAT(scales->layers[1]->v, ElementsAre(both ? 0.25F : 0.5F)) << layer << v;
      EXPECT_EQ(scales->q_scales, *q != '\0' ? 1 : 0) << layer << q;
    }
  }
  EXPECT_EQ(kv_scale_spellings().size(), names) << "a spelling that no row above has";
}

// A name that ends in a spelling is never passed over: it binds, or is an error (here also K without V).
TEST(KvScales, NoSpellingIsMissedWhereItCannotBind) {
  for (const KvScaleSpelling& spelling : kv_scale_spellings()) {
    if (spelling.target == KvScaleTarget::q) continue;
    for (const char* before :
         {"model.layers.7.self_attn.", "transformer.h.0.attention.", "model.layers.0.mixer.",
          "model.layers.0.self_attn.inner.", "model.layers.0.self_attn._"}) {
      const std::string name = fmt::format("{}{}", before, spelling.name);
      const auto scales = Scales().add(name, 1.0F).bind({2});
      ASSERT_FALSE(scales) << name;
      EXPECT_THAT(scales.error().message, HasSubstr(name));
    }
  }
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

// vLLM's layer writes -1 for what it never got; the scale itself may stand under another name.
TEST(KvScales, MinusOneLeavesItsPlaceToAnotherSpelling) {
  const std::string layer = "model.layers.0.self_attn.";
  for (const bool first : {true, false}) {
    Scales tensors;
    if (first) tensors.add(layer + "attn.k_scale", -1.0F).add(layer + "attn.v_scale", -1.0F);
    tensors.add(layer + "k_proj.k_scale", 0.25F).add(layer + "v_proj.v_scale", 0.5F);
    if (!first) tensors.add(layer + "kv_scale", -1.0F);
    const auto scales = tensors.bind({2});
    ASSERT_TRUE(scales) << scales.error().message;
    EXPECT_THAT(scales->layers[0]->k, ElementsAre(0.25F));
    EXPECT_THAT(scales->layers[0]->v, ElementsAre(0.5F));
  }
}

TEST(KvScales, TwoSpellingsMayAgreeButNotDiffer) {
  const std::string k = "model.layers.0.self_attn.k_scale";
  const std::string v = "model.layers.0.self_attn.v_scale";
  const std::string other = "language_model.model.layers.0.self_attn.attn.k_scale";
  const auto same = Scales().add(k, 0.25F).add(v, 0.5F).add(other, 0.25F).bind({2});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_THAT(same->layers[0]->k, ElementsAre(0.25F));
  const auto per_head = Scales().add(k, {0.25F, 0.25F}, Shape({2})).add(v, 0.5F).add(other, 0.25F).bind({2});
  ASSERT_TRUE(per_head) << per_head.error().message;
  const auto differ = Scales().add(k, 0.25F).add(v, 0.5F).add(other, 0.375F).bind({2});
  const auto one_head = Scales().add(k, {0.25F, 0.375F}, Shape({2})).add(v, 0.5F).add(other, 0.25F).bind({2});
  for (const auto& refused : {differ, one_head}) {
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr(k));
    EXPECT_THAT(refused.error().message, HasSubstr(other));
  }
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
  // The smallest and the largest numbers that can be divided by and multiplied with.
  for (const float bad : {1e-45F, 2.9e-39F}) {
    expect(Scales().add(k, bad).add(v, 1.0F), {2}, "self_attn.k_scale: ");
    expect(Scales().add(k, bad).add(v, 1.0F), {2}, "its reciprocal isn't finite");
  }
  expect(Scales().add(k, 1.0F).add(v, 1e36F), {2}, "448 times it isn't finite");
  EXPECT_TRUE(Scales().add(k, 3e-39F).add(v, 7e35F).bind({2}));
  expect(Scales().add(k, 1.0F).add("model.layers.0.self_attn.kv_scale", 2.0F), {2},
         "model.layers.0.self_attn.kv_scale give different values");
}

TEST(KvScales, ScalesThatBelongToNoLayerAreNamed) {
  for (const char* name :
       {"model.layers.2.self_attn.k_scale", "model.layers.1.self_attn.v_scale",
        "vision.layers.0.self_attn.k_scale", "model.layers.x.self_attn.v_scale",
        "model.layers.0.attention.kv_scale", "k_scale", "model.layers.99999999999999999999.self_attn.k_scale",
        "model.layers.0.self_attn.extra.k_proj.output_scale", "model.layers.0.self_attn.__k_scale",
        "transformer.layers.0.attention.kv_cache_scaling_factor", "model.layers.0.self_attn.k_scale_inv",
        "model.layers.0.self_attn.k_bmm_quantizer._amax", "model.layers.0.self_attn.key_scale"}) {
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
