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
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace kv8::text {

struct Fragment {
  std::string text;
  bool starts_token = true;  // false: more of the token that the fragment before belongs to
};

// A stage at work: it has the state of one text.
class DecoderStage {
 public:
  using Sink = std::function<void(Fragment fragment)>;

  virtual ~DecoderStage() = default;
  virtual void push(Fragment fragment, const Sink& sink) = 0;
  virtual void flush(const Sink& sink) = 0;  // the text is over
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

  std::vector<std::unique_ptr<DecoderStage>> start() const;

 private:
  Status add_json(const Json& spec, std::string_view source, const std::string& path);
  void add(Factory factory) { factories_.push_back(std::move(factory)); }
  // For a stage that must see whole tokens, behind one that has joined them to one.
  void add_whole_token(Factory factory);

  std::vector<Factory> factories_;
  bool joined_ = false;  // a stage so far makes one token of all
};

// A text on its way through the stages.
class DecoderRun {
 public:
  explicit DecoderRun(const Decoder& decoder) : stages_(decoder.start()) {}

  // Both append to out.
  void push(std::string_view token_text, std::string& out);
  void flush(std::string& out);

 private:
  void feed(size_t stage, Fragment fragment, std::string& out);

  std::vector<std::unique_ptr<DecoderStage>> stages_;
};

}  // namespace kv8::text
