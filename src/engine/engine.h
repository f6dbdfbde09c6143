// A model ready to run: checkpoint, backend, cache and text, put together; sequences run through it in
// chunks.
//
// Not thread-safe: one thread owns an Engine and its sequences. docs/engine.md is the contract.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "core/error.h"
#include "formats/checkpoint.h"
#include "kv_cache/sequence_pages.h"
#include "models/decoder.h"
#include "models/decoder_weights.h"
#include "ops/ops.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kv8::engine {

struct EngineOptions {
  int threads = 0;  // 0: all that the process may use
  kv_cache::KvFormat kv_cache_dtype = kv_cache::KvFormat::fp8;
  std::string skip_layers;  // as kv_cache::apply_skip_layers reads it
  attention::Accumulate accumulate = attention::Accumulate::f32;
  // Scales of an FP8 cache: empty = the checkpoint's; "1.0" = none at all; else a safetensors file with
  // scales.
  std::string kv_scales;
  int64_t max_model_len = 0;     // tokens of one sequence; 0: what the model was trained for
  int64_t prefill_chunk = 512;   // tokens of a prompt that run as one step
  int64_t max_logit_rows = 64;   // rows that get logits at once
  models::LoadProgress on_load;  // after each layer's weights
};

// The tokenizer of a checkpoint, without its weights; nothing if it has none.
Expected<std::optional<text::Tokenizer>> load_tokenizer(const formats::Checkpoint& checkpoint);

// One running sequence: its tokens are in the cache.
class Sequence {
 public:
  int64_t length() const { return pages_.length(); }
  int64_t held_pages(size_t group) const { return pages_.held_pages(group); }

 private:
  friend class Engine;
  explicit Sequence(kv_cache::SequencePages pages) : pages_(std::move(pages)) {}
  kv_cache::SequencePages pages_;
};

class Engine {
 public:
  // model: a folder or a .gguf. Errors name the file, the field and what was expected.
  static Expected<std::unique_ptr<Engine>> create(const std::string& model, const EngineOptions& options);

  const models::ModelConfig& config() const { return decoder_->config(); }
  const models::Decoder& decoder() const { return *decoder_; }
  const formats::Checkpoint& checkpoint() const { return *checkpoint_; }
  const kv_cache::CachePlan& cache_plan() const { return plan_; }
  const EngineOptions& options() const { return options_; }
  int64_t max_model_len() const { return max_model_len_; }
  std::string backend() const { return ops_->name(); }
  // Things a user should know: scales missing, tensors unused. Printed once by the program.
  const std::vector<std::string>& warnings() const { return warnings_; }
  int64_t saturations() const;
  const std::string& scales_description() const { return scales_description_; }  // "calibrated", "none: 1.0"

  // Null where the model has none: a folder with weights alone still runs on token ids.
  const text::Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  const text::ChatTemplate* chat_template() const { return chat_template_ ? &*chat_template_ : nullptr; }
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }

  Sequence new_sequence();

  // Called after each chunk with the tokens done so far; returning false cancels (ErrorCode::cancelled).
  using Progress = std::function<bool(int64_t done)>;

  // Appends tokens to the sequence, in chunks, and returns the logits [vocab] after the last of them; valid
  // until the next call. Errors: invalid_argument (a token outside of the vocabulary, too long a context),
  // out_of_memory, cancelled (the chunks done stay in the cache).
  Expected<std::span<const float>> append(Sequence& sequence, std::span<const int32_t> tokens,
                                          const Progress& progress = {});

  // The same, with the logits after every token: row(i, logits) for token i, in order.
  using LogitRow = std::function<void(int64_t index, std::span<const float> logits)>;
  Status append_with_logits(Sequence& sequence, std::span<const int32_t> tokens, const LogitRow& row);

 private:
  Engine() = default;
  Status load_cache();
  Status load_scales();
  Status load_text();
  Status check_tokens(const Sequence& sequence, std::span<const int32_t> tokens) const;
  Expected<ops::Activations> run_chunk(Sequence& sequence, std::span<const int32_t> tokens,
                                       std::span<const int32_t> logit_rows);

  EngineOptions options_;
  std::unique_ptr<formats::Checkpoint> checkpoint_;
  std::unique_ptr<ops::Ops> ops_;
  std::unique_ptr<models::Decoder> decoder_;
  kv_cache::CachePlan plan_;
  std::vector<kv_cache::BlockPool> pools_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> chat_template_;
  std::vector<int32_t> eos_ids_;
  std::vector<std::string> warnings_;
  std::string scales_description_ = "none: 1.0";
  std::vector<float> logits_;
  int64_t max_model_len_ = 0;
};

}  // namespace kv8::engine
