#include "text/stream_decoder.h"

#include "text/tokenizer_model.h"

namespace kv8::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : model_(tokenizer.model_),
      skip_special_tokens_(skip_special_tokens),
      run_(std::make_unique<DecoderRun>(model_->decoder)) {}

StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

Expected<std::string> StreamDecoder::push(int32_t id) {
  std::string out;
  if (model_->is_token(id) && !(skip_special_tokens_ && model_->is_special(id))) {
    KV8_RETURN_IF_ERROR(run_->push(model_->token_text(id), out));
  }
  return out;
}

Expected<std::string> StreamDecoder::flush() {
  std::string out;
  KV8_RETURN_IF_ERROR(run_->flush(out));
  run_ = std::make_unique<DecoderRun>(model_->decoder);
  return out;
}

}  // namespace kv8::text
