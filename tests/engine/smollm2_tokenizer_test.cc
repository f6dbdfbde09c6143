// The ids of the default model's GGUF against llama.cpp's (llama-cpp-python 0.3.36, vocab_only), special
// tokens found and not found. Needs the model: KV8_SMOLLM2, or what `kv8 run smollm2-135m` left in
// ~/.cache/kv8.
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/engine.h"

namespace kv8::engine {
namespace {

std::filesystem::path model_path() {
  if (const char* path = std::getenv("KV8_SMOLLM2"); path != nullptr && *path != '\0') return path;
  const char* home = std::getenv("HOME");
  const auto cache = std::filesystem::path(home == nullptr ? "" : home) / ".cache/kv8";
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(cache, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("SmolLM2-135M-Instruct") && name.ends_with(".gguf")) return entry.path();
  }
  return {};
}

Json golden() {
  const std::string path = std::string(KV8_SOURCE_DIR) + "/tests/fixtures/text/smollm2_ids.json.gz";
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw std::runtime_error("can't open " + path);
  std::string text(size_t{1} << 20, '\0');
  const int count = gzread(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  auto json = parse_json(text.substr(0, static_cast<size_t>(std::max(count, 0))), path);
  if (!json) throw std::runtime_error(json.error().message);
  return *std::move(json);
}

TEST(SmolLm2Tokenizer, IdsAreLlamaCpps) {
  const auto path = model_path();
  if (path.empty()) {
    GTEST_SKIP()
        << "THE TOKENIZER OF SMOLLM2 IS NOT TESTED: no KV8_SMOLLM2, no SmolLM2-135M-Instruct*.gguf under "
           "~/.cache/kv8";
  }
  const auto checkpoint = formats::Checkpoint::open(path);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto loaded = load_tokenizer(*checkpoint);
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_TRUE(*loaded);
  const text::Tokenizer& tokenizer = **loaded;
  const Json cases = golden();
  ASSERT_GE(cases.size(), 150U);
  for (const Json& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = false}), ids) << text;
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = false, .parse_special_tokens = false}),
              item.at("plain").get<std::vector<int32_t>>())
        << text;
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

}  // namespace
}  // namespace kv8::engine
