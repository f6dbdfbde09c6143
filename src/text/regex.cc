#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <algorithm>
#include <limits>
#include <memory>

#include <pcre2.h>

#include "core/check.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using CodePtr = std::unique_ptr<pcre2_code, FreeCode>;

// Per character the quick code looks at no more than the product of the two.
constexpr size_t kQuickWindow = 128;  // bytes
constexpr uint32_t kQuickBacktracks = 100;

// Every item of the pattern that the counting code comes to, and how far it went since the last one.
struct Counter {
  TextBudget* budget = nullptr;
  size_t position = 0;
};

int count_item(pcre2_callout_block* block, void* data) {
  constexpr size_t kBytesPerStep = 32;  // a run of one kind of character is walked that fast
  auto& counter = *static_cast<Counter*>(data);
  const size_t at = block->current_position;
  const size_t distance = at > counter.position ? at - counter.position : counter.position - at;
  counter.position = at;
  return counter.budget->spend(1 + distance / kBytesPerStep) ? 0 : PCRE2_ERROR_CALLOUT;
}

std::string message_of(int error) {
  char message[200] = {};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
  return message;
}

// What a thread needs to match: made once, since the JIT's stack is worth keeping.
class Matcher {
 public:
  Matcher()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(size_t{32} << 10, size_t{16} << 20, nullptr)) {
    KV8_CHECK(data_ != nullptr && context_ != nullptr);
    pcre2_jit_stack_assign(context_, nullptr, stack_);
    pcre2_set_heap_limit(context_, 256U << 10);  // KiB, for the interpreter only
    pcre2_set_callout(context_, count_item, &counter_);
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }

  // text ends where the window does; partial: it goes on behind.
  int quick(const pcre2_code* code, std::string_view text, size_t from, bool partial) {
    pcre2_set_match_limit(context_, kQuickBacktracks);
    return run(code, text, from, PCRE2_NO_UTF_CHECK | (partial ? PCRE2_PARTIAL_HARD : 0U));
  }

  int counting(const pcre2_code* code, std::string_view text, size_t from, TextBudget& budget) {
    counter_ = {&budget, from};
    pcre2_set_match_limit(context_, std::numeric_limits<uint32_t>::max());
    pcre2_set_depth_limit(context_, std::numeric_limits<uint32_t>::max());
    const int result = run(code, text, from, PCRE2_NO_UTF_CHECK);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
    counter_.position = from;
    return run(code, text, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
  }

  Regex::Match match() const {
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_);
    return {offsets[0], offsets[1]};
  }

 private:
  int run(const pcre2_code* code, std::string_view text, size_t from, uint32_t options) {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, data_,
                       context_);
  }

  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
  Counter counter_;
};

}  // namespace

struct Regex::Code {
  std::string where;
  CodePtr quick;
  CodePtr counting;
};

Expected<Regex> Regex::compile(std::string_view pattern, std::string_view where) {
  KV8_ASSIGN_OR_RETURN(const std::string translated, translate_pattern(pattern, where));
  int error = 0;
  const auto compile_with = [&](uint32_t more, uint32_t jit) {
    // Never \C: half a character must not match.
    constexpr uint32_t kOptions =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
    PCRE2_SIZE offset = 0;
    CodePtr code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                               kOptions | more, &error, &offset, nullptr));
    if (code) pcre2_jit_compile(code.get(), jit);  // without it the interpreter does the same
    return code;
  };
  auto code = std::make_shared<Code>();
  code->where = where;
  code->quick = compile_with(0, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  if (code->quick) {
    code->counting = compile_with(PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE, PCRE2_JIT_COMPLETE);
  }
  if (!code->counting) {
    return make_error(ErrorCode::unsupported, "{}: regular expression \"{}\": {}", where, pattern,
                      message_of(error));
  }
  return Regex(std::move(code));
}

Expected<std::optional<Regex::Match>> Regex::find(std::string_view text, size_t from,
                                                  TextBudget& budget) const {
  thread_local Matcher matcher;
  int result = PCRE2_ERROR_NOMATCH;
  size_t start = from;
  for (;;) {
    size_t end = std::min(text.size(), start + kQuickWindow);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    const bool partial = end < text.size();
    budget.count(1);
    result = matcher.quick(code_->quick.get(), text.substr(0, end), start, partial);
    if (result != PCRE2_ERROR_NOMATCH || !partial) break;
    start = end;
  }
  if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
    result = matcher.counting(code_->counting.get(), text, start, budget);
  }
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result == PCRE2_ERROR_CALLOUT) {
    return make_error(ErrorCode::unsupported, "{}: the pattern needs more than {} steps for this text",
                      code_->where, budget.steps() - 1);
  }
  if (result < 0) {
    return make_error(ErrorCode::unsupported, "{}: the pattern failed on this text: {}", code_->where,
                      message_of(result));
  }
  const Match match = matcher.match();
  if (match.begin < from || match.end < match.begin) {  // \K inside a look-around
    return make_error(ErrorCode::unsupported, "{}: the pattern matches text in front of where it looks",
                      code_->where);
  }
  return match;
}

size_t Regex::next_character(std::string_view text, size_t position) {
  return position < text.size() ? position + utf8_length(text[position]) : position + 1;
}

}  // namespace kv8::text
