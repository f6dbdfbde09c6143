#include "engine/engine.h"

#include <algorithm>

#include "core/check.h"
#include "core/thread_pool.h"
#include "kv_cache/pool_plan.h"
#include "ops/cpu/cpu_ops.h"

namespace kv8::engine {

namespace {

Status validate(const EngineOptions& options) {
  const auto refuse = [](const char* field, const char* range) {
    return make_error(ErrorCode::invalid_argument, "{}: expected {}", field, range);
  };
  if (options.threads < 0 || options.threads > 4096) return refuse("threads", "0 (all) to 4096");
  if (options.max_model_len < 0 || options.max_model_len > kv_cache::kMaxSequenceTokens)
    return refuse("max-model-len", "0 (the model's own) to 274877906816 tokens");
  if (options.prefill_chunk < 1 || options.prefill_chunk > 1 << 20)
    return refuse("prefill-chunk", "1 to 1048576 tokens");
  if (options.max_logit_rows < 1) return refuse("max-logit-rows", "at least 1");
  return {};
}

}  // namespace

Expected<std::unique_ptr<Engine>> Engine::create(const std::string& model, const EngineOptions& options) {
  KV8_RETURN_IF_ERROR(validate(options));
  std::unique_ptr<Engine> engine(new Engine());
  engine->options_ = options;
  KV8_ASSIGN_OR_RETURN(formats::Checkpoint checkpoint, formats::Checkpoint::open(model));
  engine->checkpoint_ = std::make_unique<formats::Checkpoint>(std::move(checkpoint));
  const std::string source = engine->checkpoint_->config_source();
  KV8_ASSIGN_OR_RETURN(models::ModelConfig config,
                       models::parse_model_config(engine->checkpoint_->config(), source));
  engine->max_model_len_ = options.max_model_len > 0 ? options.max_model_len : config.max_positions;
  if (engine->max_model_len_ > config.max_positions) {
    engine->warnings_.push_back(
        fmt::format("the model was trained for {} tokens; answers beyond that are not to be trusted",
                    config.max_positions));
  }

  const int threads = usable_threads(options.threads);
  if (options.threads > threads) {
    engine->warnings_.push_back(
        fmt::format("{} threads are more than can run at once here: {} are used", options.threads, threads));
  }
  engine->ops_ = ops::cpu::make_cpu_ops({.threads = threads});
  KV8_ASSIGN_OR_RETURN(
      models::DecoderWeights weights,
      models::load_decoder_weights(*engine->checkpoint_, config, *engine->ops_, options.on_load));
  const models::DecoderLimits limits{options.prefill_chunk,
                                     std::min(options.max_logit_rows, options.prefill_chunk)};
  KV8_ASSIGN_OR_RETURN(engine->decoder_,
                       models::Decoder::create(std::move(config), std::move(weights), *engine->ops_, limits));
  KV8_RETURN_IF_ERROR(engine->load_cache());
  KV8_RETURN_IF_ERROR(engine->load_text());
  return engine;
}

Status Engine::load_cache() {
  std::vector<kv_cache::CacheLayer> layers = models::cache_layers(config(), options_.kv_cache_dtype);
  KV8_RETURN_IF_ERROR(kv_cache::apply_skip_layers(options_.skip_layers, layers));
  KV8_ASSIGN_OR_RETURN(plan_, kv_cache::make_cache_plan(std::move(layers)));
  KV8_ASSIGN_OR_RETURN(const kv_cache::PoolPlan pool_plan,
                       kv_cache::plan_pools(plan_, {.sequences = 1,
                                                    .tokens = max_model_len_,
                                                    .chunk = options_.prefill_chunk,
                                                    .bytes = std::nullopt}));
  for (const int64_t pages : pool_plan.pages) {
    KV8_ASSIGN_OR_RETURN(kv_cache::BlockPool pool, kv_cache::BlockPool::create(pages));
    pools_.push_back(std::move(pool));
  }
  KV8_RETURN_IF_ERROR(ops_->allocate_cache(plan_, pool_plan.pages));
  KV8_RETURN_IF_ERROR(ops_->set_accumulate(options_.accumulate));
  return load_scales();
}

Sequence Engine::new_sequence() {
  return Sequence(kv_cache::SequencePages(plan_, pools_));
}

int64_t Engine::saturations() const {
  int64_t sum = 0;
  for (const int64_t count : ops_->saturations()) sum += count;
  return sum;
}

Status Engine::check_tokens(const Sequence& sequence, std::span<const int32_t> tokens) const {
  KV8_CHECK(!tokens.empty(), "no tokens");
  for (const int32_t token : tokens) {
    if (token < 0 || token >= config().vocab_size) {
      return make_error(ErrorCode::invalid_argument, "token {} is outside of the vocabulary, 0 to {}", token,
                        config().vocab_size - 1);
    }
  }
  const auto total = sequence.length() + static_cast<int64_t>(tokens.size());
  if (total > max_model_len_) {
    return make_error(ErrorCode::invalid_argument,
                      "{} tokens don't fit a context of {}: shorten the prompt or raise --max-model-len (the "
                      "model's own limit is {})",
                      total, max_model_len_, config().max_positions);
  }
  return {};
}

Expected<ops::Activations> Engine::run_chunk(Sequence& sequence, std::span<const int32_t> tokens,
                                             std::span<const int32_t> logit_rows) {
  const int64_t first_position = sequence.length();
  const auto count = static_cast<int64_t>(tokens.size());
  KV8_RETURN_IF_ERROR(sequence.pages_.reserve(count));
  const ops::StepSequence rows{0, count, first_position, sequence.pages_.tables()};
  KV8_ASSIGN_OR_RETURN(const ops::Activations logits, decoder_->forward({tokens, {&rows, 1}}, logit_rows));
  sequence.pages_.advance(count);
  return logits;
}

Expected<std::span<const float>> Engine::append(Sequence& sequence, std::span<const int32_t> tokens,
                                                const Progress& progress) {
  KV8_RETURN_IF_ERROR(check_tokens(sequence, tokens));
  const auto chunk = static_cast<size_t>(decoder_->limits().rows);
  ops::Activations logits;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    const bool last = begin + part.size() == tokens.size();
    const auto last_row = static_cast<int32_t>(part.size() - 1);
    const std::span<const int32_t> logit_rows(&last_row, last ? 1 : 0);
    KV8_ASSIGN_OR_RETURN(logits, run_chunk(sequence, part, logit_rows));
    if (progress && !progress(static_cast<int64_t>(begin + part.size()))) {
      return make_error(ErrorCode::cancelled, "cancelled after {} of {} tokens", begin + part.size(),
                        tokens.size());
    }
  }
  logits_.resize(static_cast<size_t>(config().vocab_size));
  KV8_RETURN_IF_ERROR(ops_->copy_to_host(logits, logits_));
  return std::span<const float>(logits_);
}

Status Engine::append_with_logits(Sequence& sequence, std::span<const int32_t> tokens, const LogitRow& row) {
  KV8_RETURN_IF_ERROR(check_tokens(sequence, tokens));
  const auto vocab = static_cast<size_t>(config().vocab_size);
  // Every row of a chunk gets logits, so chunks are as short as the logits buffer.
  const auto chunk = static_cast<size_t>(std::min(decoder_->limits().rows, decoder_->limits().logit_rows));
  std::vector<int32_t> rows;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    rows.resize(part.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
    KV8_ASSIGN_OR_RETURN(const ops::Activations logits, run_chunk(sequence, part, rows));
    logits_.resize(part.size() * vocab);
    KV8_RETURN_IF_ERROR(ops_->copy_to_host(logits, logits_));
    for (size_t i = 0; i < part.size(); ++i) {
      row(static_cast<int64_t>(begin + i), std::span<const float>(logits_).subspan(i * vocab, vocab));
    }
  }
  return {};
}

}  // namespace kv8::engine
