// Regular expressions over UTF-8, on PCRE2 with its JIT, as tokenizers write them.
//
// A tokenizer.json's patterns are in Oniguruma's Ruby syntax. compile() translates where PCRE2 means another
// thing: \s is exactly White_Space, \w has marks and connectors, \h is a hex digit, ^ and $ are at every
// line,
// (?m) lets the dot match newlines, x{1,3}+ repeats. Set operations inside a class (&&, nested classes) are
// refused.
//
// Matching takes time linear in the text for every pattern that a published tokenizer uses. What another
// pattern may take is bounded by the budget of the whole text: beyond it, or beyond the memory that
// backtracking may use, a search is an error. It never counts as "no match".
//
// A pattern is compiled twice. The quick code looks at a short window, and may backtrack so little that its
// cost for a character has a bound. Where the window or that bound isn't enough, the other code goes on: it
// reports every item of the pattern that it comes to, and so pays for exactly what it does.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "text/text_budget.h"

namespace kv8::text {

class Regex {
 public:
  // `where` names the pattern in messages. unsupported: not a pattern we can compile.
  static Expected<Regex> compile(std::string_view pattern, std::string_view where);

  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };
  // The first match that starts at `from` or later. `text` must be valid UTF-8, `from` a character's start.
  // Text before `from` is visible to look-behind. Errors: unsupported, naming the pattern's place, when the
  // budget or the memory for backtracking is used up.
  Expected<std::optional<Match>> find(std::string_view text, size_t from, TextBudget& budget) const;

  // All matches, in order, as callback(begin, end), whose Status may end the search. Empty ones too, except
  // right behind another match.
  template <class Callback>
  Status for_each(std::string_view text, TextBudget& budget, Callback&& callback) const {
    size_t from = 0;
    std::optional<size_t> last_end;
    while (from <= text.size()) {
      KV8_ASSIGN_OR_RETURN(const auto match, find(text, from, budget));
      if (!match) return {};
      from = match->end;
      if (match->begin == match->end) {
        from = next_character(text, match->end);
        if (last_end == match->end) continue;
      }
      KV8_RETURN_IF_ERROR(callback(match->begin, match->end));
      last_end = match->end;
    }
    return {};
  }

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static size_t next_character(std::string_view text, size_t position);

  std::shared_ptr<const Code> code_;  // shared: copying a Regex doesn't compile again
};

// The translation alone, for tests.
Expected<std::string> translate_pattern(std::string_view pattern, std::string_view where);

}  // namespace kv8::text
