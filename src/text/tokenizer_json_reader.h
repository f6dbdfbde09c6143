// tokenizer.json read in one pass: the vocabulary and the merges, nearly all of a file of up to 33 MB, go
// straight to compact arrays; the rest becomes an ordinary Json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/vocabulary.h"

namespace kv8::text {

struct TokenizerJson {
  Json root;  // without model.vocab and model.merges
  std::string vocabulary_texts;
  std::vector<Vocabulary::Entry> vocabulary;  // {"text": id, ...}
  std::string merge_texts;
  struct MergeText {
    uint32_t offset = 0;  // the left text; the right one follows it
    uint32_t left_length = 0;
    uint32_t right_length = 0;
  };
  std::vector<MergeText> merges;  // "left right" or ["left", "right"], in the file's order
};

// Errors: corrupt_data (not JSON, too deep, a merge that isn't two texts, an id that isn't a number).
Expected<TokenizerJson> read_tokenizer_json(std::string_view json, std::string_view source);

}  // namespace kv8::text
