// What happens to text before it is split: a chain of steps, each rewriting the text.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/regex.h"
#include "text/text_budget.h"

namespace kv8::text {

using NormalizerStep = std::function<Status(std::string& text, TextBudget& budget)>;

class Normalizer {
 public:
  // From tokenizer.json's "normalizer" (null: none). Errors name source and the component: corrupt_data for a
  // bad field, unsupported for a component we don't have.
  static Expected<Normalizer> from_json(const Json& spec, std::string_view source);

  // where: the step's place in the file, for messages.
  void add(std::string where, NormalizerStep step) { steps_.emplace_back(std::move(where), std::move(step)); }
  bool empty() const { return steps_.empty(); }
  // Errors name the step: a text that grows beyond the budget, a pattern that fails.
  Status apply(std::string& text, TextBudget& budget) const;

 private:
  Status add_json(const Json& spec, std::string_view source, const std::string& path);

  std::vector<std::pair<std::string, NormalizerStep>> steps_;
};

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// In time n log n for any text, long runs of combining marks included.
void normalize_unicode(std::string& text, NormalForm form);

// Every occurrence of a non-empty pattern; left to right, not overlapping.
Status replace_all(std::string& text, std::string_view pattern, std::string_view content, TextBudget& budget);

// A "pattern" field: {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  std::string literal;  // used if regex is empty
  std::optional<Regex> regex;

  static Expected<Pattern> from_json(const JsonObject& owner, std::string_view key);
  Status replace(std::string& text, std::string_view content, TextBudget& budget) const;
};

}  // namespace kv8::text
