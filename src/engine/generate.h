// The decode loop of one request.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace kv8::engine {

struct GenerationRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;  // 0: until the context is full
  SamplingParams sampling;
  std::vector<std::string> stop;  // text that ends the answer and isn't part of it
  bool ignore_eos = false;
  const std::atomic<bool>* cancel = nullptr;  // set from a signal handler or another thread
};

enum class FinishReason : uint8_t { stop, length, cancelled };
std::string_view to_string(FinishReason reason);

struct GenerationResult {
  std::vector<int32_t> tokens;  // without the end-of-sequence token
  std::string text;             // empty without a tokenizer
  FinishReason finish = FinishReason::length;
  int64_t prompt_tokens = 0;
  double prefill_seconds = 0;  // until the first token was drawn
  double decode_seconds = 0;   // from then until the last
};

struct GenerationHooks {
  std::function<void(int64_t done, int64_t total)> on_prefill;  // after each chunk
  std::function<void(std::string_view text)> on_text;           // whole UTF-8 characters, as they come
};

// Errors are those of Engine::append, and of validate(). A cancelled request is a result, not an error.
Expected<GenerationResult> generate(Engine& engine, const GenerationRequest& request,
                                    const GenerationHooks& hooks = {});

}  // namespace kv8::engine
