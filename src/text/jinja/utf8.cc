#include "text/jinja/utf8.h"

#include <algorithm>

#include <utf8proc.h>

#include "text/jinja/budget.h"

namespace kv8::text::jinja {

namespace {

constexpr char32_t kEscapedByte = 0xDC00;
constexpr char32_t kSharpS = 0xDF;

bool is_escaped_byte(char32_t character) {
  return character >= kEscapedByte + 0x80 && character <= kEscapedByte + 0xFF;
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

bool is_cased(char32_t character) {
  return is_upper(character) || is_lower(character) || is_title(character);
}

char32_t lower(char32_t character) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character)));
}

// The one character in everyday text whose upper case is two.
void append_upper(std::string& text, char32_t character, bool title) {
  if (character == kSharpS) {
    text += title ? "Ss" : "SS";
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(character);
  append_character(text, static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

}  // namespace

char32_t next_character(std::string_view text, size_t& offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) {
    ++offset;
    return lead;
  }
  utf8proc_int32_t character = -1;
  const auto rest = text.substr(offset, 4);
  const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest.data()),
                                     static_cast<utf8proc_ssize_t>(rest.size()), &character);
  if (size <= 0 || character < 0) {
    ++offset;
    return kEscapedByte + lead;
  }
  offset += static_cast<size_t>(size);
  return static_cast<char32_t>(character);
}

void append_character(std::string& text, char32_t character) {
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else if (is_escaped_byte(character)) {
    text += static_cast<char>(character - kEscapedByte);
  } else {
    utf8proc_uint8_t bytes[4];
    const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
    text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

std::u32string decode(std::string_view text) {
  checked_size(text.size(), sizeof(char32_t));
  spend_pass(4 * text.size());  // it takes longer than a search, and so does what is done with the result
  std::u32string characters;
  characters.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) characters += next_character(text, offset);
  return characters;
}

std::string encode(std::u32string_view characters) {
  std::string text;
  text.reserve(characters.size());
  for (const char32_t character : characters) append_character(text, character);
  return text;
}

size_t character_count(std::string_view text) {
  spend_pass(text.size());
  size_t count = 0;
  for (size_t offset = 0; offset < text.size(); ++count) next_character(text, offset);
  return count;
}

size_t byte_offset(std::string_view text, size_t character_index) {
  spend_pass(std::min(text.size(), character_index));
  size_t offset = 0;
  for (; character_index > 0 && offset < text.size(); --character_index) next_character(text, offset);
  return offset;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alphabetic(char32_t character) {
  const auto kind = category(character);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t character) {
  return category(character) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t character) {
  const auto kind = category(character);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t character) {
  return category(character) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t character) {
  return category(character) == UTF8PROC_CATEGORY_LL || character == 0xAA || character == 0xBA;
}

bool is_title(char32_t character) {
  return category(character) == UTF8PROC_CATEGORY_LT;
}

bool is_word(char32_t character) {
  return character == '_' || is_alphabetic(character) || is_numeric(character);
}

bool is_printable(char32_t character) {
  if (character == ' ') return true;
  if (is_escaped_byte(character)) return false;
  const auto kind = category(character);
  return kind != UTF8PROC_CATEGORY_CN && (kind < UTF8PROC_CATEGORY_ZS || kind > UTF8PROC_CATEGORY_CO);
}

std::string to_upper(std::string_view text) {
  spend_pass(4 * text.size());
  std::string result;
  for (size_t offset = 0; offset < text.size();) append_upper(result, next_character(text, offset), false);
  return result;
}

std::string to_lower(std::string_view text) {
  spend_pass(4 * text.size());
  std::string result;
  for (size_t offset = 0; offset < text.size();)
    append_character(result, lower(next_character(text, offset)));
  return result;
}

std::string to_title(std::string_view text) {
  spend_pass(4 * text.size());
  std::string result;
  bool inside_word = false;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t character = next_character(text, offset);
    if (inside_word) {
      append_character(result, lower(character));
    } else {
      append_upper(result, character, true);
    }
    inside_word = is_cased(character);
  }
  return result;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  std::string result;
  size_t offset = 0;
  append_upper(result, next_character(text, offset), true);
  return result + to_lower(text.substr(offset));
}

std::string swap_case(std::string_view text) {
  spend_pass(4 * text.size());
  std::string result;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t character = next_character(text, offset);
    if (is_upper(character)) {
      append_character(result, lower(character));
    } else {
      append_upper(result, character, false);
    }
  }
  return result;
}

std::string_view strip(std::string_view text, const std::optional<std::string>& set, bool left, bool right) {
  std::u32string characters = decode(set.value_or(""));
  std::sort(characters.begin(), characters.end());
  const auto goes = [&](char32_t character) {
    return set ? std::binary_search(characters.begin(), characters.end(), character) : is_space(character);
  };
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t next = begin;
    if (!goes(next_character(text, next))) break;
    begin = next;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
      --start;
    size_t next = start;
    char32_t character = next_character(text.substr(0, end), next);
    if (next != end) {  // the last byte stands alone
      start = end - 1;
      next = start;
      character = next_character(text.substr(0, end), next);
    }
    if (!goes(character)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  constexpr size_t kCheckEvery = 1024;
  spend_pass(4 * text.size());
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    size_t end = start;
    size_t next = start;
    while (next < text.size()) {
      end = next;
      const char32_t character = next_character(text, next);
      if (is_line_break(character)) {
        if (character == '\r' && next < text.size() && text[next] == '\n') ++next;
        break;
      }
      end = next;
    }
    lines.emplace_back(text.substr(start, (keep_ends ? next : end) - start));
    if (lines.size() % kCheckEvery == 0) checked_size(lines.size(), sizeof(std::string));
    start = next;
  }
  return lines;
}

}  // namespace kv8::text::jinja
