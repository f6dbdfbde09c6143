// GPT-2's byte alphabet: 256 printable characters, one for each byte, so that any text is text in a
// vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kv8::text {

// How GPT-2 splits text into words, in Oniguruma syntax.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string to_byte_alphabet(std::string_view bytes);
// nullopt if a character of `text` (valid UTF-8) isn't in the alphabet.
std::optional<std::string> from_byte_alphabet(std::string_view text);

}  // namespace kv8::text
