#include "text/unicode.h"

#include <cstring>

#include <utf8proc.h>

namespace kv8::text {

Utf8Unit next_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, Utf8Kind::character};
  size_t length = 0;
  // The second byte's range keeps out overlong forms, surrogates and what lies above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {1, Utf8Kind::invalid};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, Utf8Kind::incomplete};
    if (byte(i) < low || byte(i) > high) return {i, Utf8Kind::invalid};
    low = 0x80;
    high = 0xBF;
  }
  return {length, Utf8Kind::character};
}

namespace {

// Eight ASCII bytes at once: most text is ASCII, and this decides how fast clean text passes.
size_t ascii_prefix(std::string_view text, size_t position) {
  while (position + 8 <= text.size()) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + position, 8);
    if ((word & 0x8080808080808080U) != 0) break;
    position += 8;
  }
  return position;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t i = ascii_prefix(text, 0); i < text.size(); i = ascii_prefix(text, i)) {
    const Utf8Unit unit = next_utf8(text.substr(i));
    if (unit.kind != Utf8Kind::character) return false;
    i += unit.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Unit unit = next_utf8(text.substr(i));
    out += unit.kind == Utf8Kind::character ? text.substr(i, unit.length) : kReplacementUtf8;
    i += unit.length;
  }
  return out;
}

char32_t decode_utf8(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const size_t at = position;
  const size_t length = utf8_length(text[at]);
  position += length;
  switch (length) {
    case 1:
      return byte(at);
    case 2:
      return (byte(at) & 0x1F) << 6 | (byte(at + 1) & 0x3F);
    case 3:
      return (byte(at) & 0x0F) << 12 | (byte(at + 1) & 0x3F) << 6 | (byte(at + 2) & 0x3F);
    default:
      return (byte(at) & 0x07) << 18 | (byte(at + 1) & 0x3F) << 12 | (byte(at + 2) & 0x3F) << 6 |
             (byte(at + 3) & 0x3F);
  }
}

void append_utf8(std::string& out, char32_t character) {
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else if (character < 0x800) {
    out += static_cast<char>(0xC0 | character >> 6);
    out += static_cast<char>(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    out += static_cast<char>(0xE0 | character >> 12);
    out += static_cast<char>(0x80 | (character >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (character & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | character >> 18);
    out += static_cast<char>(0x80 | (character >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (character >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (character & 0x3F));
  }
}

bool is_whitespace(char32_t character) {
  if (character <= 0x20) return character == 0x20 || (character >= 0x09 && character <= 0x0D);
  if (character == 0x85) return true;
  if (character < 0xA0) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_mark(char32_t character) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_word(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return (character >= 0x24B6 && character <= 0x24E9) ||  // the circled letters are alphabetic, too
             (character >= 0x1F130 && character <= 0x1F149) ||
             (character >= 0x1F150 && character <= 0x1F169) || (character >= 0x1F170 && character <= 0x1F189);
  }
}

size_t trailing_whitespace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t position = start;
    if (!is_whitespace(decode_utf8(text, position))) break;
    end = start;
  }
  return end;
}

size_t leading_whitespace(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    size_t next = position;
    if (!is_whitespace(decode_utf8(text, next))) break;
    position = next;
  }
  return position;
}

}  // namespace kv8::text
