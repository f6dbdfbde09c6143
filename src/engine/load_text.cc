// The tokenizer, the chat template and the end-of-sequence ids of a checkpoint.
#include <algorithm>
#include <map>

#include "engine/engine.h"

namespace kv8::engine {

namespace {

constexpr std::string_view kTokenizerKey = "tokenizer.ggml.";

Expected<std::optional<int32_t>> optional_id(const formats::Gguf& gguf, std::string_view name,
                                             int64_t vocab) {
  const std::string key = fmt::format("{}{}", kTokenizerKey, name);
  if (!gguf.has(key)) return std::nullopt;
  KV8_ASSIGN_OR_RETURN(const int64_t id, gguf.integer(key, 0, vocab - 1));
  return std::optional<int32_t>(static_cast<int32_t>(id));
}

Expected<std::optional<bool>> optional_flag(const formats::Gguf& gguf, std::string_view name) {
  const std::string key = fmt::format("{}{}", kTokenizerKey, name);
  if (!gguf.has(key)) return std::nullopt;
  KV8_ASSIGN_OR_RETURN(const bool flag, gguf.boolean(key));
  return std::optional<bool>(flag);
}

Expected<text::GgufVocabulary> gguf_vocabulary(const formats::Gguf& gguf) {
  const auto key = [](std::string_view name) { return fmt::format("{}{}", kTokenizerKey, name); };
  text::GgufVocabulary vocabulary;
  vocabulary.source = gguf.path().string();
  KV8_ASSIGN_OR_RETURN(vocabulary.model, gguf.string(key("model")));
  KV8_ASSIGN_OR_RETURN(vocabulary.pre, gguf.string_or(key("pre"), "default"));
  KV8_ASSIGN_OR_RETURN(const auto tokens, gguf.strings(key("tokens")));
  vocabulary.tokens.assign(tokens.begin(), tokens.end());
  if (gguf.has(key("scores"))) {
    KV8_ASSIGN_OR_RETURN(vocabulary.scores, gguf.floats(key("scores")));
  }
  if (gguf.has(key("token_type"))) {
    KV8_ASSIGN_OR_RETURN(const auto types, gguf.integers(key("token_type")));
    vocabulary.token_types.assign(types.begin(), types.end());
  }
  if (gguf.has(key("merges"))) {
    KV8_ASSIGN_OR_RETURN(const auto merges, gguf.strings(key("merges")));
    vocabulary.merges.assign(merges.begin(), merges.end());
  }
  const auto count = static_cast<int64_t>(tokens.size());
  KV8_ASSIGN_OR_RETURN(vocabulary.bos_id, optional_id(gguf, "bos_token_id", count));
  KV8_ASSIGN_OR_RETURN(vocabulary.eos_id, optional_id(gguf, "eos_token_id", count));
  KV8_ASSIGN_OR_RETURN(vocabulary.unknown_id, optional_id(gguf, "unknown_token_id", count));
  KV8_ASSIGN_OR_RETURN(vocabulary.padding_id, optional_id(gguf, "padding_token_id", count));
  KV8_ASSIGN_OR_RETURN(vocabulary.add_bos, optional_flag(gguf, "add_bos_token"));
  KV8_ASSIGN_OR_RETURN(vocabulary.add_eos, optional_flag(gguf, "add_eos_token"));
  KV8_ASSIGN_OR_RETURN(vocabulary.add_space_prefix, optional_flag(gguf, "add_space_prefix"));
  return vocabulary;
}

}  // namespace

Expected<std::optional<text::Tokenizer>> load_tokenizer(const formats::Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) {
    // As with a folder: weights alone still run on token ids.
    if (!checkpoint.gguf()->has(fmt::format("{}model", kTokenizerKey))) return std::nullopt;
    KV8_ASSIGN_OR_RETURN(const text::GgufVocabulary vocabulary, gguf_vocabulary(*checkpoint.gguf()));
    KV8_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, text::Tokenizer::from_gguf(vocabulary));
    return std::optional(std::move(tokenizer));
  }
  const auto path = checkpoint.tokenizer_json_path();
  if (!path) return std::nullopt;
  const Json* config = checkpoint.tokenizer_config().is_object() ? &checkpoint.tokenizer_config() : nullptr;
  KV8_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, text::Tokenizer::from_json(*path, config));
  return std::optional(std::move(tokenizer));
}

Status Engine::load_text() {
  KV8_ASSIGN_OR_RETURN(tokenizer_, load_tokenizer(*checkpoint_));
  // generation_config.json knows best where an answer ends; config.json and the tokenizer add what they name.
  const auto add_eos = [&](int64_t id) {
    if (std::ranges::find(eos_ids_, id) == eos_ids_.end()) eos_ids_.push_back(static_cast<int32_t>(id));
  };
  if (const Json* generation = checkpoint_->generation_config(); generation != nullptr) {
    KV8_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::from(*generation, "generation_config.json"));
    KV8_ASSIGN_OR_RETURN(const auto ids,
                         object.integers_or_empty("eos_token_id", 0, config().vocab_size - 1));
    for (const int64_t id : ids) add_eos(id);
  }
  for (const int64_t id : config().eos_ids) add_eos(id);
  if (!tokenizer_) return {};
  if (tokenizer_->vocab_size() > config().vocab_size) {
    warnings_.push_back(
        fmt::format("the tokenizer has {} tokens, the model {}: text with the others is refused",
                    tokenizer_->vocab_size(), config().vocab_size));
  }
  if (const auto eos = tokenizer_->eos_id()) add_eos(*eos);
  if (const auto source = checkpoint_->chat_template()) {
    std::map<std::string, std::string> special;
    if (const auto bos = tokenizer_->bos_id()) special["bos_token"] = tokenizer_->token_text(*bos);
    if (const auto eos = tokenizer_->eos_id()) special["eos_token"] = tokenizer_->token_text(*eos);
    KV8_ASSIGN_OR_RETURN(chat_template_, text::ChatTemplate::create(*source, std::move(special),
                                                                    checkpoint_->chat_template_source()));
  }
  return {};
}

}  // namespace kv8::engine
