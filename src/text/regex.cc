#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <algorithm>
#include <limits>

#include <pcre2.h>

#include "core/check.h"
#include "text/unicode.h"

namespace kv8::text {

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;

  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

namespace {

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
  }
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher() {
    pcre2_match_data_free(data_);
    pcre2_match_context_free(context_);
    pcre2_jit_stack_free(stack_);
  }

  std::optional<Regex::Match> find(const pcre2_code* code, bool jit, std::string_view text, size_t from) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    // Enough for the backtracking over one long run that ordinary patterns do, too little for exponential
    // ones.
    const size_t limit = 10'000'000 + 8 * text.size();
    pcre2_set_match_limit(
        context_, static_cast<uint32_t>(std::min<size_t>(limit, std::numeric_limits<uint32_t>::max())));
    int result = 0;
    if (jit) {
      result = pcre2_jit_match(code, subject, text.size(), from, 0, data_, context_);
    }
    if (!jit || result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result =
          pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data_, context_);
    }
    if (result < 0) return std::nullopt;
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data_);
    if (offsets[0] < from || offsets[1] < offsets[0]) return std::nullopt;  // \K inside a look-around
    return Regex::Match{offsets[0], offsets[1]};
  }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;
};

}  // namespace

Expected<Regex> Regex::compile(std::string_view pattern, std::string_view where) {
  KV8_ASSIGN_OR_RETURN(const std::string translated, translate_pattern(pattern, where));
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Never \C: half a character must not match.
  const uint32_t options =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options,
                             &error, &offset, nullptr);
  if (code->code == nullptr) {
    char message[200] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return make_error(ErrorCode::unsupported, "{}: regular expression \"{}\": {}", where, pattern, message);
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from) const {
  thread_local Matcher matcher;
  return matcher.find(code_->code, code_->jit, text, from);
}

size_t Regex::next_character(std::string_view text, size_t position) {
  return position < text.size() ? position + utf8_length(text[position]) : position + 1;
}

}  // namespace kv8::text
