// What happens to text before it is split: a chain of steps, each rewriting the text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/regex.h"

namespace kv8::text {

using NormalizerStep = std::function<void(std::string& text)>;

class Normalizer {
 public:
  // From tokenizer.json's "normalizer" (null: none). Errors name source and the component: corrupt_data for a
  // bad field, unsupported for a component we don't have.
  static Expected<Normalizer> from_json(const Json& spec, std::string_view source);

  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  void apply(std::string& text) const {
    for (const NormalizerStep& step : steps_) step(text);
  }

 private:
  Status add_json(const Json& spec, std::string_view source, const std::string& path);

  std::vector<NormalizerStep> steps_;
};

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// In time n log n for any text, long runs of combining marks included.
void normalize_unicode(std::string& text, NormalForm form);

// Every occurrence of a non-empty pattern; left to right, not overlapping.
void replace_all(std::string& text, std::string_view pattern, std::string_view content);

// A "pattern" field: {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  std::string literal;  // used if regex is empty
  std::optional<Regex> regex;

  static Expected<Pattern> from_json(const JsonObject& owner, std::string_view key);
  void replace(std::string& text, std::string_view content) const;
};

}  // namespace kv8::text
