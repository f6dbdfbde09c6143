#include "models/decoder_weights.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "edited_model.h"
#include "formats/checkpoint.h"
#include "models/leftovers.h"
#include "ops/cpu/cpu_ops.h"

namespace kv8::models {
namespace {

using test::EditableModel;
using test::EditedModel;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The error of loading the model, or "" if it loads.
std::string load_error(const std::filesystem::path& path) {
  const auto checkpoint = formats::Checkpoint::open(path);
  if (!checkpoint) return checkpoint.error().message;
  const auto config = parse_model_config(checkpoint->config(), checkpoint->config_source());
  if (!config) return config.error().message;
  const auto ops = ops::cpu::make_cpu_ops({.threads = 1});
  const auto weights = load_decoder_weights(*checkpoint, *config, *ops);
  return weights ? "" : weights.error().message;
}

std::string load_error(const std::string& fixture, const std::function<void(EditableModel&)>& edit) {
  return load_error(EditedModel(fixture, edit).path());
}

std::string layer_tensor(const std::string& name) {
  return "model.layers.1." + name;
}

TEST(DecoderWeights, EveryFixtureOfTheTableLoads) {
  for (const char* fixture :
       {"llama", "llama_fp8_kv_tensor", "llama_fp8_kv_head", "qwen2", "qwen3", "qwen3_fp8_block", "gemma3"}) {
    EXPECT_EQ(load_error(fixture, [](EditableModel& /*model*/) {}), "") << fixture;
  }
  for (const char* file : {"llama", "qwen2", "qwen3", "gemma3"}) {
    EXPECT_EQ(load_error(test::format_fixture("gguf") / (std::string(file) + ".gguf")), "") << file;
  }
}

// Each ran, and gave other answers than the model's.
TEST(DecoderWeights, WhatNobodyReadsIsAnErrorThatNamesIt) {
  const auto add = [](const std::string& name) {
    return [name](EditableModel& model) { model.tensors[name] = test::f32_tensor({2}, {1, 2}); };
  };
  const struct {
    const char* fixture;
    std::function<void(EditableModel&)> edit;
    std::string named;
  } cases[] = {
      {"llama", [](EditableModel& model) { model.config["num_hidden_layers"] = 3; }, "model.layers.3."},
      {"llama", add("model.layers.0.self_attn.q_proj.bias"), "model.layers.0.self_attn.q_proj.bias"},
      {"qwen2", add("model.layers.0.self_attn.o_proj.bias"), "model.layers.0.self_attn.o_proj.bias"},
      {"llama", add("model.layers.0.self_attn.q_norm.weight"), "model.layers.0.self_attn.q_norm.weight"},
      {"llama", add("adapter.weight"), "1 of its tensors"},
      {"gemma3", add("vision_tower.patch.weight"), "vision_tower.patch.weight"},
      {"llama", add("model.layers.0.mlp.gate_proj.weight_zero_point"), "weight_zero_point"},
  };
  for (const auto& [fixture, edit, named] : cases) {
    EXPECT_THAT(load_error(fixture, edit), HasSubstr(named)) << named;
  }
}

TEST(DecoderWeights, TheCountAndTheFirstNamesAreGiven) {
  const std::string error = load_error("llama", [](EditableModel& model) {
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) model.tensors[name] = test::f32_tensor({1}, {0});
  });
  EXPECT_THAT(error, HasSubstr("6 of its tensors"));
  EXPECT_THAT(error, HasSubstr(": a, b, c, d, ..."));
  EXPECT_THAT(error, HasSubstr("config.json"));
}

TEST(DecoderWeights, KnownLeftoversAreLeft) {
  EXPECT_EQ(
      load_error("llama",
                 [](EditableModel& model) {
                   for (const char* name :
                        {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq",
                         "model.layers.0.self_attn.masked_bias", "model.layers.0.mlp.gate_proj.input_scale",
                         "model.layers.0.self_attn.k_proj.k_scale", "model.layers.2.self_attn.q_scale"})
                     model.tensors[name] = test::f32_tensor({1}, {1});
                 }),
      "");
  // A copy of the head beside tied embeddings, as transformers ignores it.
  EXPECT_EQ(load_error("qwen3",
                       [](EditableModel& model) {
                         model.tensors["lm_head.weight"] = model.tensors["model.embed_tokens.weight"];
                       }),
            "");
  // A text model in its multimodal wrapper, with the rest of the wrapper.
  EXPECT_EQ(
      load_error("gemma3",
                 [](EditableModel& model) {
                   std::map<std::string, test::OwnedTensor> wrapped;
                   for (auto& [name, tensor] : model.tensors) wrapped["language_model." + name] = tensor;
                   wrapped["vision_tower.vision_model.post_layernorm.weight"] = test::f32_tensor({1}, {1});
                   wrapped["multi_modal_projector.mm_soft_emb_norm.weight"] = test::f32_tensor({1}, {1});
                   model.tensors = std::move(wrapped);
                   model.config = {{"model_type", "gemma3"}, {"text_config", model.config}};
                 }),
      "");
  EXPECT_FALSE(is_leftover("xmasked_bias", {}));
  EXPECT_FALSE(is_leftover("masked_bias.weight", {}));
}

TEST(DecoderWeights, WhatTheFamilyNeedsMustBeThere) {
  const auto drop = [](const std::string& name) {
    return [name](EditableModel& model) { ASSERT_EQ(model.tensors.erase(name), 1U) << name; };
  };
  for (const char* bias : {"q_proj", "k_proj", "v_proj"}) {
    const std::string name = layer_tensor(std::string("self_attn.") + bias + ".bias");
    EXPECT_THAT(load_error("qwen2", drop(name)), HasSubstr(name));
  }
  for (const char* norm : {"self_attn.q_norm.weight", "self_attn.k_norm.weight", "input_layernorm.weight"}) {
    EXPECT_THAT(load_error("qwen3", drop(layer_tensor(norm))), HasSubstr(layer_tensor(norm)));
  }
  EXPECT_THAT(load_error("llama", [](EditableModel& model) { model.config["attention_bias"] = true; }),
              HasSubstr("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_THAT(load_error("llama", [](EditableModel& model) { model.config["mlp_bias"] = true; }),
              HasSubstr("model.layers.0.mlp.gate_proj.bias"));
}

TEST(DecoderWeights, AnFp8WeightHasOneScale) {
  const std::string name = layer_tensor("self_attn.q_proj");
  for (const char* fixture : {"llama_fp8_kv_tensor", "qwen3_fp8_block"}) {
    const auto model = formats::Checkpoint::open(test::fixtures() / "models" / fixture).value();
    const std::string scale =
        name + (model.has(name + ".weight_scale") ? ".weight_scale" : ".weight_scale_inv");
    const std::string without = load_error(fixture, [&](EditableModel& m) { m.tensors.erase(scale); });
    EXPECT_THAT(without, HasSubstr(name + ".weight: FP8 weights without a scale"));
    const std::string renamed =
        load_error(fixture, [&](EditableModel& m) { m.rename(scale, name + ".scale_weight"); });
    EXPECT_THAT(renamed, HasSubstr(name + ".weight: FP8 weights without a scale"));
    EXPECT_THAT(renamed, HasSubstr("Beside it are " + name + ".scale_weight"));
    EXPECT_THAT(load_error(fixture,
                           [&](EditableModel& m) {
                             m.tensors[name + ".weight_scale"] = m.tensors[name + ".weight_scale_inv"] =
                                 test::f32_tensor({1}, {1});
                           }),
                HasSubstr("two scales"));
    EXPECT_THAT(load_error(fixture,
                           [&](EditableModel& m) {
                             m.tensors[scale] = test::f32_tensor({3}, {1, 1, 1});
                           }),
                HasSubstr(scale + ": shape [3]"));
    for (const float bad : {0.0F, -1.0F, kNan, kInfinity, 1e-38F, 1e38F}) {
      const std::string error =
          load_error(fixture, [&](EditableModel& m) { m.tensors[scale] = test::f32_tensor({1}, {bad}); });
      EXPECT_THAT(error, HasSubstr(scale + ": element 0 is")) << bad;
    }
  }
  // A scale without FP8 weights is a tensor that nobody reads.
  EXPECT_THAT(
      load_error("llama",
                 [&](EditableModel& m) { m.tensors[name + ".weight_scale"] = test::f32_tensor({1}, {1}); }),
      HasSubstr(name + ".weight_scale"));
}

// Were dropped, or reported as missing.
TEST(DecoderWeights, AGgufTypeThatIsNotReadIsNamed) {
  constexpr uint32_t kIq4Nl = 20;
  const std::string original = test::read_bytes(test::format_fixture("gguf/qwen2.gguf"));
  const test::TemporaryFolder folder;
  for (const std::string name : {"token_embd.weight", "blk.1.attn_q.bias", "blk.2.attn_norm.weight"}) {
    std::string bytes = original;
    size_t at = bytes.find(name) + name.size();
    uint32_t rank = 0;
    std::memcpy(&rank, bytes.data() + at, sizeof(rank));
    at += sizeof(rank) + rank * sizeof(uint64_t);
    std::memcpy(bytes.data() + at, &kIq4Nl, sizeof(kIq4Nl));
    test::write_bytes(folder / "model.gguf", bytes);
    EXPECT_THAT(load_error(folder / "model.gguf"), HasSubstr(name + ": type IQ4_NL is not supported"));
  }
}

TEST(DecoderWeights, SmallVectorsAreFinite) {
  const struct {
    const char* fixture;
    std::string name;
  } vectors[] = {{"llama", "model.norm.weight"},
                 {"llama", layer_tensor("post_attention_layernorm.weight")},
                 {"qwen3", layer_tensor("self_attn.k_norm.weight")},
                 {"qwen2", layer_tensor("self_attn.v_proj.bias")}};
  for (const auto& [fixture, name] : vectors) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      const std::string error = load_error(fixture, [&, &name = name](EditableModel& model) {
        const Shape shape = model.tensors[name].shape;
        std::vector<float> values(static_cast<size_t>(shape.elements()), 1.0F);
        values.back() = bad;
        model.tensors[name] = test::f32_tensor(shape, values);
      });
      EXPECT_THAT(error, HasSubstr(name + ": element")) << bad;
    }
  }
}

}  // namespace
}  // namespace kv8::models
