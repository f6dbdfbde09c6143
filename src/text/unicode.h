// UTF-8 and the few Unicode properties that tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kv8::text {

constexpr char32_t kReplacementCharacter = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

bool is_valid_utf8(std::string_view text);

// How many bytes at the start of `text` (not empty) belong together: a whole character, or the longest prefix
// of one that is no character (it becomes one U+FFFD, as in the WHATWG decoder, Python and Rust).
enum class Utf8Kind { character, invalid, incomplete };  // incomplete: cut off by the end of the text
struct Utf8Unit {
  size_t length = 0;
  Utf8Kind kind = Utf8Kind::invalid;
};
Utf8Unit next_utf8(std::string_view text);

// Every invalid sequence becomes U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// The character at text[position], which must be valid UTF-8; moves position behind it.
char32_t decode_utf8(std::string_view text, size_t& position);
void append_utf8(std::string& out, char32_t character);

// The length of the UTF-8 character that starts with this byte (valid UTF-8 only).
constexpr size_t utf8_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

bool is_whitespace(char32_t character);  // Unicode White_Space
bool is_word(char32_t character);        // what \w matches: letters, marks, digits, connectors
bool is_mark(char32_t character);        // general category M

// The last whitespace run of `text` starts here (text.size() if there is none); and the first one ends here.
size_t trailing_whitespace(std::string_view text);
size_t leading_whitespace(std::string_view text);

}  // namespace kv8::text
