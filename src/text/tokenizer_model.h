// What a Tokenizer is made of, however it was read. Internal to text/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/gguf_vocabulary.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace kv8::text {

struct TokenizerModel {
  Bpe bpe;
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  std::vector<int32_t> prefix;  // what add_special_tokens puts in front of a text
  std::vector<int32_t> suffix;  // and behind it
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;

  int32_t find(std::string_view token) const {
    if (const AddedToken* added_token = added.find(token)) return added_token->id;
    return bpe.vocabulary().find(token);
  }
  std::string_view token_text(int32_t id) const {
    if (const AddedToken* added_token = added.find(id)) return added_token->text;
    return bpe.vocabulary().text(id);
  }
  bool is_token(int32_t id) const { return added.find(id) != nullptr || bpe.vocabulary().contains(id); }
  bool is_special(int32_t id) const {
    const AddedToken* added_token = added.find(id);
    return added_token != nullptr && added_token->special;
  }
};

Expected<std::shared_ptr<const TokenizerModel>> load_json_tokenizer(std::string_view json,
                                                                    std::string_view source,
                                                                    const Json* config);
Expected<std::shared_ptr<const TokenizerModel>> load_gguf_tokenizer(const GgufVocabulary& vocabulary);

}  // namespace kv8::text
