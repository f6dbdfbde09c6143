// Where the tests find their fixtures: KV8_FIXTURES if set, else tests/fixtures of the repository.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace kv8::test {

inline std::filesystem::path fixtures() {
  if (const char* path = std::getenv("KV8_FIXTURES"); path != nullptr && *path != '\0') return path;
  return std::filesystem::path(KV8_SOURCE_DIR) / "tests/fixtures";
}

// The real tokenizers (16 MB of other people's data) aren't part of the repository: KV8_FIXTURES, or a folder
// shared/fixtures beside the checkout. Empty if they are nowhere; a test that needs them then skips, loudly.
inline std::filesystem::path tokenizer_fixtures() {
  for (const auto& root : {fixtures(), std::filesystem::path(KV8_SOURCE_DIR) / "../shared/fixtures"}) {
    if (std::filesystem::exists(root / "tokenizers/golden.json.gz")) return root / "tokenizers";
  }
  return {};
}

// Every model family folder that has a golden.safetensors, sorted by name.
inline std::vector<std::string> model_fixtures() {
  std::vector<std::string> names;
  const auto root = fixtures() / "models";
  if (std::filesystem::exists(root)) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (std::filesystem::exists(entry.path() / "golden.safetensors"))
        names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kv8::test
