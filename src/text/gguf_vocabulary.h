// A tokenizer as GGUF metadata holds it (tokenizer.ggml.*), filled by whoever read the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kv8::text {

// The values of tokenizer.ggml.token_type.
enum class GgufTokenType : int32_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

struct GgufVocabulary {
  std::string source;  // names the file in messages
  std::string model;   // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;     // tokenizer.ggml.pre: how text is split, for "gpt2"
  std::vector<std::string> tokens;
  std::vector<float> scores;         // "llama": higher merges first
  std::vector<int32_t> token_types;  // empty: all normal
  std::vector<std::string> merges;   // "gpt2": "left right"
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unknown_id;
  std::optional<int32_t> padding_id;
  std::optional<bool> add_bos;  // absent: as is usual for the model
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
};

}  // namespace kv8::text
