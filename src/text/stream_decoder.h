// Ids to text as they come, for streaming an answer.
//
// The pieces that push() and flush() return, put together, are what Tokenizer::decode() gives for all the
// ids. A piece is always whole UTF-8 characters: what may still become one waits, and at the end turns into
// U+FFFD.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace kv8::text {

class DecoderRun;

class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  // Errors as Tokenizer::decode().
  Expected<std::string> push(int32_t id);  // often empty
  Expected<std::string> flush();           // what still waits; then a new text may start

 private:
  std::shared_ptr<const TokenizerModel> model_;  // outlives the Tokenizer it came from
  bool skip_special_tokens_;
  std::unique_ptr<DecoderRun> run_;
};

}  // namespace kv8::text
