#include "text/jinja/string_literal.h"

#include <algorithm>

#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

int digit_value(char digit) {
  if (is_ascii_digit(digit)) return digit - '0';
  const char letter = static_cast<char>(digit | 0x20);
  return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : 16;
}

// Up to `most` digits of a base from `at`, which is moved on; nullopt with fewer than `least`.
std::optional<char32_t> read_code(std::string_view text, size_t& at, int base, size_t least, size_t most) {
  char32_t code = 0;
  size_t count = 0;
  while (count < most && at < text.size() && digit_value(text[at]) < base) {
    code = code * static_cast<char32_t>(base) + static_cast<char32_t>(digit_value(text[at++]));
    ++count;
  }
  if (count < least || code > kLastCharacter) return std::nullopt;
  return code;
}

bool is_surrogate(char32_t code) {
  return code >= 0xD800 && code <= 0xDFFF;
}

}  // namespace

std::optional<std::string> unescape(std::string_view literal) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  std::string text;
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\') {
      text += literal[at++];
      continue;
    }
    if (++at == literal.size()) return std::nullopt;
    const char escape = literal[at];
    if (const size_t known = kLetters.find(escape); known != std::string_view::npos) {
      text += kMeanings[known];
      ++at;
    } else if (escape == '\n') {
      ++at;
    } else if (escape >= '0' && escape <= '7') {
      append_character(text, *read_code(literal, at, 8, 1, 3));
    } else if (escape == 'x' || escape == 'u' || escape == 'U') {
      const size_t count = escape == 'x' ? 2 : escape == 'u' ? 4 : 8;
      const auto code = read_code(literal, ++at, 16, count, count);
      if (!code || is_surrogate(*code)) return std::nullopt;  // UTF-8 has no surrogates
      append_character(text, *code);
    } else if (escape == 'N') {
      return std::nullopt;  // needs the table of all characters' names
    } else {
      text += '\\';  // an unknown escape stays as it is
    }
  }
  return text;
}

}  // namespace kv8::text::jinja
