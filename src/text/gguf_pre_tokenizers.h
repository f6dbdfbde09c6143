// How the words of a byte-level GGUF vocabulary are cut, by the name in tokenizer.ggml.pre.
#pragma once

#include <span>
#include <string_view>

namespace kv8::text {

struct GgufPreTokenizer {
  // Applied one after the other, each to the pieces of the one before; matches and what lies between are
  // words.
  std::span<const std::string_view> patterns;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
  // The model was trained on NFC text: its tokenizer.json says so, and GGUF has no field for it.
  bool nfc = false;
};

// nullptr for a name we don't know.
const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name);

}  // namespace kv8::text
