#include "models/model_config.h"

#include <cmath>

#include <gtest/gtest.h>

#include "core/mapped_file.h"
#include "fixtures.h"

namespace kv8::models {
namespace {

Json small_config() {
  return Json::parse(
      R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 320, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096})");
}

Expected<ModelConfig> parse(const Json& json) {
  return parse_model_config(json, "config.json");
}

TEST(ModelConfig, DerivesWhatIsNotSaid) {
  const ModelConfig config = parse(small_config()).value();
  ASSERT_EQ(config.layers.size(), 4U);
  EXPECT_EQ(config.layers[0].attention()->head_dim, 16);
  EXPECT_FLOAT_EQ(config.layers[0].attention()->softmax_scale, 0.25F);
  EXPECT_EQ(config.layers[0].dense()->activation, ops::Activation::silu);
  EXPECT_FALSE(config.tied_embeddings);
}

// transformers 4 and 5 write the same model in two ways.
TEST(ModelConfig, BothStylesOfRopeGiveTheSame) {
  Json old_style = small_config();
  old_style["rope_theta"] = 500000.0;
  old_style["rope_scaling"] = Json::parse(R"({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_type": "llama3"})");
  Json new_style = small_config();
  new_style["rope_parameters"] = old_style["rope_scaling"];
  new_style["rope_parameters"]["rope_theta"] = 500000.0;
  const ModelConfig a = parse(old_style).value();
  const ModelConfig b = parse(new_style).value();
  EXPECT_EQ(a.ropes.at(0).inverse_frequencies, b.ropes.at(0).inverse_frequencies);
  EXPECT_NE(a.ropes.at(0).inverse_frequencies, parse(small_config()).value().ropes.at(0).inverse_frequencies);
}

TEST(ModelConfig, GemmaBothStyles) {
  Json json = small_config();
  json["model_type"] = "gemma3_text";
  json["num_hidden_layers"] = 7;
  json["sliding_window"] = 24;
  json["rope_theta"] = 1e6;
  json["rope_local_base_freq"] = 1e4;
  json["hidden_activation"] = "gelu_pytorch_tanh";
  json["query_pre_attn_scalar"] = 256;
  const ModelConfig config = parse(json).value();
  for (size_t layer = 0; layer < 7; ++layer) {
    EXPECT_EQ(config.layers[layer].attention()->window, layer == 5 ? 0 : 24) << layer;
    EXPECT_EQ(config.layers[layer].attention()->rope, layer == 5 ? 0 : 1) << layer;
  }
  EXPECT_FLOAT_EQ(config.embedding_scale, 8.0F);
  EXPECT_FLOAT_EQ(config.layers[0].attention()->softmax_scale, 1.0F / 16);
  EXPECT_FLOAT_EQ(config.norm_weight_offset, 1.0F);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.ropes.size(), 2U);
  json["rope_parameters"] =
      Json::parse(R"({"full_attention": {"rope_type": "default", "rope_theta": 1000000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})");
  json.erase("rope_local_base_freq");
  json.erase("rope_theta");
  const ModelConfig new_style = parse(json).value();
  ASSERT_EQ(new_style.ropes.size(), 2U);
  EXPECT_EQ(new_style.ropes[0].inverse_frequencies, config.ropes[0].inverse_frequencies);
  EXPECT_EQ(new_style.ropes[1].inverse_frequencies, config.ropes[1].inverse_frequencies);
}

TEST(ModelConfig, QwenWindowsOnlyWhenUsed) {
  Json json = small_config();
  json["model_type"] = "qwen2";
  json["sliding_window"] = 100;
  json["max_window_layers"] = 2;
  json["use_sliding_window"] = false;
  EXPECT_EQ(parse(json).value().layers[3].attention()->window, 0);
  json["use_sliding_window"] = true;
  const ModelConfig config = parse(json).value();
  EXPECT_EQ(config.layers[1].attention()->window, 0);
  EXPECT_EQ(config.layers[2].attention()->window, 100);
}

TEST(ModelConfig, ErrorsNameFileAndField) {
  const struct {
    const char* key;
    Json value;
  } cases[] = {{"model_type", "t5"},
               {"hidden_size", 0},
               {"hidden_size", -64},
               {"hidden_size", "64"},
               {"num_hidden_layers", 1e9},
               {"num_key_value_heads", 3},
               {"vocab_size", Json()},
               {"intermediate_size", 1.5},
               {"rms_norm_eps", -1},
               {"attn_logit_softcapping", -1},
               {"final_logit_softcapping", 1e300},
               {"hidden_act", "tanh"},
               {"head_dim", 15},
               {"eos_token_id", 320},
               {"layer_types", Json::array({"full_attention"})},
               {"layer_types", Json::array({"a", "b", "c", "d"})},
               {"rope_scaling", 3},
               {"num_attention_heads", 0}};
  for (const auto& [key, value] : cases) {
    Json json = small_config();
    json[key] = value;
    const auto config = parse(json);
    ASSERT_FALSE(config.has_value()) << key << " " << value;
    EXPECT_EQ(config.error().message.find("config.json: "), 0U) << config.error().message;
    EXPECT_NE(config.error().message.find(key), std::string::npos) << config.error().message;
  }
}

// The fixtures of every family: either the family is in the table, or it is refused as unsupported, by name.
TEST(ModelConfig, EveryFixtureIsReadOrRefusedByName) {
  int read = 0;
  for (const std::string& name : test::model_fixtures()) {
    const auto text = read_text_file(test::fixtures() / "models" / name / "config.json").value();
    const Json json = Json::parse(text);
    const auto config = parse(json);
    if (config) {
      ++read;
      continue;
    }
    EXPECT_EQ(config.error().code, ErrorCode::unsupported) << name << ": " << config.error().message;
    EXPECT_NE(config.error().message.find(json["model_type"].get<std::string>()), std::string::npos)
        << config.error().message;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace kv8::models
