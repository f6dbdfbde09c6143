// Python's view of a string: a sequence of characters, each with its Unicode properties. Text is UTF-8; a
// byte that isn't part of a valid sequence counts as one character (0xDC00 + byte, as Python's
// surrogateescape) and is written back as that byte.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv8::text::jinja {

char32_t next_character(std::string_view text, size_t& offset);  // offset < text.size(), is moved on
void append_character(std::string& text, char32_t character);
std::u32string decode(std::string_view text);
std::string encode(std::u32string_view characters);
size_t character_count(std::string_view text);
// The byte offset of the character with this index; text.size() if there are fewer.
size_t byte_offset(std::string_view text, size_t character_index);

bool is_space(char32_t character);
bool is_line_break(char32_t character);
bool is_alphabetic(char32_t character);
bool is_decimal(char32_t character);
bool is_digit(char32_t character);
bool is_numeric(char32_t character);
bool is_upper(char32_t character);
bool is_lower(char32_t character);
bool is_title(char32_t character);
bool is_word(char32_t character);       // \w of a regular expression
bool is_printable(char32_t character);  // as it stands in a repr
inline bool is_ascii_digit(char character) {
  return character >= '0' && character <= '9';
}

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);    // str.title()
std::string capitalize(std::string_view text);  // str.capitalize()
std::string swap_case(std::string_view text);

// Without the characters of `set` (whitespace if nullopt) at the ends asked for.
std::string_view strip(std::string_view text, const std::optional<std::string>& set = std::nullopt,
                       bool left = true, bool right = true);
std::vector<std::string> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace kv8::text::jinja
