#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/stop_matcher.h"
#include "text/stream_decoder.h"

namespace kv8::engine {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Turns tokens into text that may be shown: whole characters, nothing of a stop string.
class TextOutput {
 public:
  TextOutput(const text::Tokenizer* tokenizer, const GenerationRequest& request, const GenerationHooks& hooks,
             GenerationResult& result)
      : stops_(request.stop), hooks_(hooks), result_(result) {
    if (tokenizer != nullptr) decoder_.emplace(*tokenizer);
  }

  // False once a stop string was seen.
  Expected<bool> push(int32_t token) {
    if (!decoder_) return true;
    KV8_ASSIGN_OR_RETURN(const std::string text, decoder_->push(token));
    emit(stops_.push(text));
    return !stops_.stopped();
  }

  Status finish() {
    if (!decoder_ || stops_.stopped()) return {};
    KV8_ASSIGN_OR_RETURN(const std::string text, decoder_->flush());
    emit(stops_.push(text));
    emit(stops_.flush());
    return {};
  }

 private:
  void emit(const std::string& text) {
    if (text.empty()) return;
    result_.text += text;
    if (hooks_.on_text) hooks_.on_text(text);
  }

  std::optional<text::StreamDecoder> decoder_;
  StopMatcher stops_;
  const GenerationHooks& hooks_;
  GenerationResult& result_;
};

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
  }
  return "?";
}

Expected<GenerationResult> generate(Engine& engine, const GenerationRequest& request,
                                    const GenerationHooks& hooks) {
  KV8_RETURN_IF_ERROR(validate(request.sampling));
  if (request.prompt.empty())
    return make_error(ErrorCode::invalid_argument, "the prompt is empty: give at least one token");
  const auto cancelled = [&] {
    return request.cancel != nullptr && request.cancel->load(std::memory_order_relaxed);
  };
  const auto total = static_cast<int64_t>(request.prompt.size());

  GenerationResult result;
  result.prompt_tokens = total;
  Sequence sequence = engine.new_sequence();
  Sampler sampler(request.sampling);
  for (const int32_t token : request.prompt) sampler.observe(token);
  TextOutput output(engine.tokenizer(), request, hooks, result);

  const auto prefill_start = Clock::now();
  auto logits = engine.append(sequence, request.prompt, [&](int64_t done) {
    if (hooks.on_prefill) hooks.on_prefill(done, total);
    return !cancelled();
  });
  if (!logits && logits.error().code == ErrorCode::cancelled) {
    result.finish = FinishReason::cancelled;
    result.prefill_seconds = seconds_since(prefill_start);
    return result;
  }
  if (!logits) return tl::make_unexpected(std::move(logits).error());

  const int64_t room = engine.max_model_len() - total;
  const int64_t limit = request.max_tokens > 0 ? std::min(request.max_tokens, room) : room;
  auto decode_start = Clock::now();
  for (;;) {
    if (static_cast<int64_t>(result.tokens.size()) >= limit) break;
    const int32_t token = sampler.sample(*logits);
    if (result.tokens.empty()) {
      result.prefill_seconds = seconds_since(prefill_start);
      decode_start = Clock::now();
    }
    if (!request.ignore_eos && std::ranges::find(engine.eos_ids(), token) != engine.eos_ids().end()) {
      result.finish = FinishReason::stop;
      break;
    }
    sampler.observe(token);
    result.tokens.push_back(token);
    KV8_ASSIGN_OR_RETURN(const bool goes_on, output.push(token));
    if (!goes_on) {
      result.finish = FinishReason::stop;
      break;
    }
    if (cancelled()) {
      result.finish = FinishReason::cancelled;
      break;
    }
    if (static_cast<int64_t>(result.tokens.size()) >= limit) break;
    logits = engine.append(sequence, {&token, 1});
    if (!logits) return tl::make_unexpected(std::move(logits).error());
  }
  result.decode_seconds = seconds_since(decode_start);
  KV8_RETURN_IF_ERROR(output.finish());
  return result;
}

}  // namespace kv8::engine
