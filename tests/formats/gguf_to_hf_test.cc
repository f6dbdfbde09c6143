#include "formats/gguf_to_hf.h"

#include <cstring>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format_files.h"
#include "formats/checkpoint.h"

namespace kv8::formats {
namespace {

using test::format_fixture;
using testing::HasSubstr;

Checkpoint open_fixture(const std::string& name) {
  auto checkpoint = Checkpoint::open(format_fixture(name));
  EXPECT_TRUE(checkpoint) << checkpoint.error().message;
  return std::move(*checkpoint);
}

// The same model twice: as transformers wrote it, and as a GGUF made by the Python package from it, with that
// package's own table of names.
class BothForms : public testing::TestWithParam<const char*> {};

TEST_P(BothForms, HaveTheSameTensors) {
  const std::string family = GetParam();
  const Checkpoint folder = open_fixture("models/" + family);
  const Checkpoint gguf = open_fixture("gguf/" + family + ".gguf");
  std::set<std::string_view> names;
  for (const std::string_view name : folder.names()) names.insert(name);
  for (const std::string_view name : gguf.names()) {
    if (name == "rope_freqs.weight") continue;
    EXPECT_EQ(names.erase(name), 1U) << name;
    EXPECT_EQ(gguf.find(name)->shape, folder.find(name)->shape) << name;
  }
  EXPECT_THAT(names, testing::IsEmpty());
  // Matrices that no converter touches are the same bytes.
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const TensorView a = *folder.tensor(name);
  const TensorView b = *gguf.tensor(name);
  ASSERT_EQ(a.dtype, DType::bf16);
  ASSERT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(std::memcmp(a.data, b.data, a.bytes), 0);
}

TEST_P(BothForms, HaveTheSameConfig) {
  const std::string family = GetParam();
  const Checkpoint folder = open_fixture("models/" + family);
  const Checkpoint gguf = open_fixture("gguf/" + family + ".gguf");
  for (const char* key :
       {"model_type", "architectures", "hidden_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "intermediate_size", "rms_norm_eps", "vocab_size",
        "max_position_embeddings", "tie_word_embeddings", "hidden_act", "hidden_activation", "bos_token_id",
        "eos_token_id", "sliding_window", "query_pre_attn_scalar"}) {
    const Json expected = folder.config().value(key, Json());
    if (expected.is_null()) continue;
    EXPECT_EQ(gguf.config().value(key, Json()), expected) << family << " " << key;
  }
  EXPECT_EQ(gguf.config()["kv8_rope_interleaved"], family == "llama");
  EXPECT_EQ(gguf.config().contains("kv8_norm_weight_offset"), family == "gemma3");
  EXPECT_EQ(*gguf.chat_template(), "{{ messages[0]['content'] }}");
  EXPECT_THAT(gguf.config_source(), HasSubstr(family + ".gguf"));
}

INSTANTIATE_TEST_SUITE_P(Families, BothForms, testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GgufToHf, LlamaFrequencyFactorsAreATensor) {
  const Checkpoint gguf = open_fixture("gguf/llama.gguf");
  EXPECT_EQ(gguf.config()["kv8_rope_freq_factors"], "rope_freqs.weight");
  EXPECT_EQ(gguf.config()["rope_parameters"], (Json{{"rope_type", "default"}, {"rope_theta", 500000.0}}));
  const auto factors = gguf.tensor("rope_freqs.weight");
  ASSERT_TRUE(factors);
  EXPECT_EQ(factors->shape, Shape({gguf.config()["head_dim"].get<int64_t>() / 2}));
}

TEST(GgufToHf, LlamaRowsOfQAndKArePermutedAndNothingElseIs) {
  const Checkpoint folder = open_fixture("models/llama");
  const Checkpoint gguf = open_fixture("gguf/llama.gguf");
  const int64_t head_dim = folder.config()["head_dim"].get<int64_t>();
  for (const auto& [name, permuted] :
       {std::pair("q_proj", true), std::pair("k_proj", true), std::pair("v_proj", false)}) {
    const std::string full = fmt::format("model.layers.2.self_attn.{}.weight", name);
    const TensorView a = *folder.tensor(full);
    const TensorView b = *gguf.tensor(full);
    const size_t row = row_bytes(DType::bf16, a.cols());
    for (int64_t i = 0; i < a.rows(); ++i) {
      const int64_t head = i / head_dim;
      const int64_t dim = i % head_dim;  // of the GGUF; neighbours 2i, 2i + 1 were i, i + half
      const int64_t source = head * head_dim + (permuted ? dim / 2 + dim % 2 * (head_dim / 2) : dim);
      ASSERT_EQ(
          std::memcmp(b.data + static_cast<size_t>(i) * row, a.data + static_cast<size_t>(source) * row, row),
          0)
          << full << " row " << i;
    }
  }
}

TEST(GgufToHf, Gemma3KnowsItsWindowsAndItsTwoThetas) {
  const Checkpoint folder = open_fixture("models/gemma3");
  const Checkpoint gguf = open_fixture("gguf/gemma3.gguf");
  EXPECT_EQ(gguf.config()["rope_parameters"], folder.config()["rope_parameters"]);
  EXPECT_EQ(gguf.config()["layer_types"], folder.config()["layer_types"]);
  EXPECT_EQ(gguf.config()["kv8_norm_weight_offset"], 0);
}

TEST(GgufToHf, NamesThatTheTableDoesNotHaveStay) {
  EXPECT_EQ(hf_name_from_gguf("llama", "blk.12.attn_q.weight"), "model.layers.12.self_attn.q_proj.weight");
  EXPECT_EQ(hf_name_from_gguf("qwen2", "blk.0.attn_k.bias"), "model.layers.0.self_attn.k_proj.bias");
  EXPECT_EQ(hf_name_from_gguf("llama", "blk.3.ffn_norm.weight"),
            "model.layers.3.post_attention_layernorm.weight");
  EXPECT_EQ(hf_name_from_gguf("gemma3", "blk.3.ffn_norm.weight"),
            "model.layers.3.pre_feedforward_layernorm.weight");
  EXPECT_EQ(hf_name_from_gguf("llama", "output.weight"), "lm_head.weight");
  EXPECT_EQ(hf_name_from_gguf("llama", "blk.3.something.weight"), "blk.3.something.weight");
  EXPECT_EQ(hf_name_from_gguf("llama", "blk"), "blk");
  EXPECT_EQ(hf_name_from_gguf("other", "output.weight"), "output.weight");
}

// A fixture with the 32-bit value of one key changed.
Expected<Checkpoint> open_changed(const test::TemporaryFolder& folder, const std::string& fixture,
                                  const std::string& key, uint32_t value) {
  std::string bytes = test::read_bytes(format_fixture(fixture));
  const size_t at = bytes.find(key) + key.size() + sizeof(uint32_t);  // after the key comes its type
  bytes.replace(at, sizeof(value), test::bytes_of(value));
  test::write_bytes(folder / "changed.gguf", bytes);
  return Checkpoint::open(folder / "changed.gguf");
}

TEST(GgufToHf, CountsThatCannotBeAreErrorsThatNameTheirKey) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(open_changed(folder, "gguf/gemma3.gguf", "gemma3.block_count", 6));
  for (const auto& [key, value] : {
           std::pair("gemma3.block_count", 0U),
           std::pair("gemma3.block_count", 2'000'000'000U),  // found by fuzzing: a list of 2e9 layer types
           std::pair("gemma3.block_count", 4'000'000'000U), std::pair("gemma3.attention.head_count", 0U),
           std::pair("gemma3.attention.key_length", 0U), std::pair("gemma3.attention.value_length", 7U),
           std::pair("gemma3.embedding_length", 0U), std::pair("gemma3.feed_forward_length", 0x80000000U),
           std::pair("gemma3.attention.layer_norm_rms_epsilon", 0x7FC00000U),  // NaN
           std::pair("gemma3.rope.freq_base", 0x7F800000U),                    // infinity
           std::pair("tokenizer.ggml.eos_token_id", 320U),                     // the first that isn't a token
       }) {
    const auto changed = open_changed(folder, "gguf/gemma3.gguf", key, value);
    ASSERT_FALSE(changed) << key << " " << value;
    EXPECT_THAT(changed.error().message, HasSubstr("changed.gguf: " + std::string(key)));
  }
}

// Every one-byte change of small models, and files that once did harm: a model or an error, soon.
TEST(GgufToHf, NoDamageGetsPastTheTranslation) {
  const test::TemporaryFolder folder;
  std::mt19937 random(5);
  int files = 0;
  int models = 0;
  for (const auto& seed : std::filesystem::directory_iterator(format_fixture("../fuzz/corpus/gguf"))) {
    const std::string valid = test::read_bytes(seed.path());
    for (size_t at = 0; at < valid.size(); at += 1 + random() % 15) {
      std::string mutated = valid;
      if (at > 0) mutated[at] = static_cast<char>(mutated[at] ^ static_cast<char>(1 + random() % 255));
      test::write_bytes(folder / "mutated.gguf", mutated);
      const auto opened = Checkpoint::open(folder / "mutated.gguf");
      if (!opened) continue;
      ++models;
      EXPECT_LE(opened->config()["num_hidden_layers"].get<size_t>(), opened->names().size());
      for (const std::string_view name : opened->names()) {
        const TensorView* view = opened->find(name);
        EXPECT_TRUE(view == nullptr || view->bytes <= valid.size()) << name;
      }
    }
    ++files;
  }
  EXPECT_GE(files, 5);
  EXPECT_GT(models, files);
}

TEST(GgufToHf, OtherArchitecturesAreRefusedByName) {
  const auto types = Checkpoint::open(format_fixture("gguf/types.gguf"));
  ASSERT_FALSE(types);
  EXPECT_EQ(types.error().code, ErrorCode::unsupported);
  EXPECT_THAT(types.error().message, HasSubstr("general.architecture: 'kv8test'"));
  EXPECT_THAT(types.error().message, HasSubstr("llama, qwen2, qwen3, gemma3"));
}

}  // namespace
}  // namespace kv8::formats
