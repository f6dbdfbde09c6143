// From token texts to text, a token at a time.
//
// A tokenizer's decoder is a chain of stages. Each takes fragments of token texts and passes on what it is
// sure of, so that a stream and a whole text go through the same code: the pieces put together are the whole.
// No stage ever passes on half a UTF-8 character.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/text_budget.h"

namespace kv8::text {

struct Fragment {
  std::string text;
  bool starts_token = true;  // false: more of the token that the fragment before belongs to
};

// A stage at work: it has the state of one text.
class DecoderStage {
 public:
  using Sink = std::function<Status(Fragment fragment)>;

  virtual ~DecoderStage() = default;
  // Errors: of the budget, of a pattern, of the sink.
  virtual Status push(Fragment fragment, TextBudget& budget, const Sink& sink) = 0;
  virtual Status flush(const Sink& sink) = 0;  // the text is over
};

// The chain as a description, immutable; every text gets stages of its own from it.
class Decoder {
 public:
  using Factory = std::function<std::unique_ptr<DecoderStage>()>;

  // From tokenizer.json's "decoder" (null: token texts with a space between). Errors as
  // Normalizer::from_json.
  static Expected<Decoder> from_json(const Json& spec, std::string_view source);
  static Decoder byte_level();
  // SentencePiece as GGUF has it: U+2581 is a space, <0xNN> a byte, and the space in front is dropped if it
  // was added.
  static Decoder sentence_piece(bool strip_leading_space);

  struct NamedStage {
    std::string_view where;  // in the file, for messages; lives as long as the Decoder
    std::unique_ptr<DecoderStage> stage;
    size_t bytes = 0;  // that it passed on so far
  };
  std::vector<NamedStage> start() const;

 private:
  Status add_json(const Json& spec, std::string_view source, const std::string& path);
  void add(std::string where, Factory factory) {
    factories_.emplace_back(std::move(where), std::move(factory));
  }
  // For a stage that must see whole tokens, behind one that has joined them to one.
  void add_whole_token(const std::string& where, Factory factory);

  std::vector<std::pair<std::string, Factory>> factories_;
  bool joined_ = false;  // a stage so far makes one token of all
};

// A text on its way through the stages. The decoder outlives it.
class DecoderRun {
 public:
  explicit DecoderRun(const Decoder& decoder) : stages_(decoder.start()) {}

  // Both append to out. Errors name the stage: a text that grows beyond all measure, a pattern that fails.
  Status push(std::string_view token_text, std::string& out);
  Status flush(std::string& out);

 private:
  Status feed(size_t stage, Fragment fragment, std::string& out);
  Status passed_on(size_t stage, Fragment fragment, std::string& out);

  std::vector<Decoder::NamedStage> stages_;
  TextBudget budget_;
};

}  // namespace kv8::text
