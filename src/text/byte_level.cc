#include "text/byte_level.h"

#include <array>

#include "text/unicode.h"

namespace kv8::text {

namespace {

// Printable bytes of Latin-1 stand for themselves, the 68 others for U+0100 and on.
constexpr size_t kCharacters = 256 + 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};  // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t character = stands_for_itself(byte) ? byte : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 4);
  for (const char byte : bytes) append_utf8(out, kAlphabet.character[static_cast<unsigned char>(byte)]);
  return out;
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t character = decode_utf8(text, i);
    if (character >= kCharacters || kAlphabet.byte[character] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[character]);
  }
  return out;
}

}  // namespace kv8::text
