// Text to token ids and back, from a tokenizer.json (Hugging Face) or a GGUF file's vocabulary.
//
// Ids and decoded text are exactly those of the `tokenizers` library that the file was made for. Encoding
// takes time and memory linear in the text's length, or is an error (text/text_budget.h). Any bytes are
// accepted: sequences that are not UTF-8 are read as U+FFFD, since the reference takes valid text only.
// decode() gives valid UTF-8 for any ids; ids that are no tokens are skipped.
//
// A Tokenizer is immutable; copies share one vocabulary and may be used by any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/gguf_vocabulary.h"
#include "text/text_budget.h"

namespace kv8::text {

struct EncodeOptions {
  // Adds what the model expects around a text (usually the begin-of-sequence token). Chat templates write it
  // themselves: their output is encoded without.
  bool add_special_tokens = true;
  // Finds "<|im_end|>" and the like in the text. Off for text from outside: there it stays text.
  bool parse_special_tokens = true;
};

struct TokenizerModel;

class Tokenizer {
 public:
  // `config` is tokenizer_config.json, if there is one: bos_token and eos_token, and add_bos_token and
  // add_eos_token, which go before what tokenizer.json says. Errors: not_found, io; corrupt_data (damaged,
  // contradicts itself) and unsupported (a model or component we don't have), naming file and field.
  static Expected<Tokenizer> from_json(const std::filesystem::path& path, const Json* config = nullptr);
  static Expected<Tokenizer> from_json_text(std::string_view json, std::string_view source,
                                            const Json* config = nullptr);
  static Expected<Tokenizer> from_gguf(const GgufVocabulary& vocabulary);

  // Errors name the file and the step in it: corrupt_data for one that makes too much of a text, unsupported
  // for a pattern that needs too long. `budget`, if given, is that of this text, for whoever measures.
  Expected<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {},
                                        TextBudget* budget = nullptr) const;
  Expected<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  int32_t vocab_size() const;  // one more than the largest id
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The token as the vocabulary has it ("Ġthe"); empty for an id that is no token. Lives as long as the
  // tokenizer.
  std::string_view token_text(int32_t id) const;
  bool is_special(int32_t id) const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::shared_ptr<const TokenizerModel> model) : model_(std::move(model)) {}

  std::shared_ptr<const TokenizerModel> model_;
};

}  // namespace kv8::text
