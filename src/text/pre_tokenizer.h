// How text is cut into words before BPE: a chain of steps, each cutting the pieces of the one before, or
// rewriting them.
#pragma once

#include <cstddef>
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

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

// Words as ranges of one text. `first` says whether the text begins the whole input.
struct Pieces {
  std::string text;
  std::vector<Span> spans;
  bool first = true;

  std::string_view piece(const Span& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

using PreTokenizerStep = std::function<Status(Pieces& pieces, TextBudget& budget)>;

// What becomes of the separators that a pattern finds.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class PreTokenizer {
 public:
  // From tokenizer.json's "pre_tokenizer" (null: the text is one word). Errors as Normalizer::from_json.
  static Expected<PreTokenizer> from_json(const Json& spec, std::string_view source);

  // where: the step's place in the file, for messages.
  void add(std::string where, PreTokenizerStep step) {
    steps_.emplace_back(std::move(where), std::move(step));
  }
  // Errors name the step: a text that grows beyond the budget, a pattern that fails.
  Expected<Pieces> apply(std::string text, bool first, TextBudget& budget) const;

 private:
  Status add_json(const Json& spec, std::string_view source, const std::string& path);
  Status add_metaspace(const JsonObject& spec, const std::string& where);

  std::vector<std::pair<std::string, PreTokenizerStep>> steps_;
};

// Steps that GGUF vocabularies use without a tokenizer.json.
PreTokenizerStep split_step(Regex separator, SplitBehavior behavior, bool invert = false);
PreTokenizerStep byte_alphabet_step(bool add_prefix_space);

}  // namespace kv8::text
