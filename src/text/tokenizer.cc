#include "text/tokenizer.h"

#include <algorithm>

#include "core/mapped_file.h"
#include "text/tokenizer_model.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

class Encoder {
 public:
  Encoder(const TokenizerModel& model, EncodeOptions options, TextBudget& budget)
      : model_(model), options_(options), budget_(budget) {}

  // Added tokens are looked for twice, as the reference does: in the text as it is, and between those that
  // were found there, in the normalized text.
  Expected<std::vector<int32_t>> run(std::string_view text) {
    if (options_.add_special_tokens) ids_ = model_.prefix;
    for (const auto& raw : model_.added.split(text, false, options_.parse_special_tokens)) {
      if (raw.token != kNoToken) {
        ids_.push_back(raw.token);
        continue;
      }
      const bool first = raw.text.data() == text.data();
      if (model_.normalizer.empty()) {
        KV8_RETURN_IF_ERROR(encode_normalized(raw.text, first));
      } else {
        std::string normalized(raw.text);
        KV8_RETURN_IF_ERROR(model_.normalizer.apply(normalized, budget_));
        KV8_RETURN_IF_ERROR(encode_normalized(normalized, first));
      }
    }
    if (options_.add_special_tokens) ids_.insert(ids_.end(), model_.suffix.begin(), model_.suffix.end());
    budget_.count(scratch_.steps());
    return std::move(ids_);
  }

 private:
  Status encode_normalized(std::string_view text, bool first) {
    for (const auto& section : model_.added.split(text, true, options_.parse_special_tokens)) {
      if (section.token != kNoToken) {
        ids_.push_back(section.token);
        continue;
      }
      KV8_ASSIGN_OR_RETURN(const Pieces pieces,
                           model_.pre_tokenizer.apply(std::string(section.text),
                                                      first && section.text.data() == text.data(), budget_));
      for (const Span& span : pieces.spans) model_.bpe.encode(pieces.piece(span), scratch_, ids_);
    }
    return {};
  }

  const TokenizerModel& model_;
  EncodeOptions options_;
  TextBudget& budget_;
  Bpe::Scratch scratch_;
  std::vector<int32_t> ids_;
};

}  // namespace

Expected<Tokenizer> Tokenizer::from_json(const std::filesystem::path& path, const Json* config) {
  KV8_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  const std::string_view json(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return from_json_text(json, path.string(), config);
}

Expected<Tokenizer> Tokenizer::from_json_text(std::string_view json, std::string_view source,
                                              const Json* config) {
  KV8_ASSIGN_OR_RETURN(auto model, load_json_tokenizer(json, source, config));
  return Tokenizer(std::move(model));
}

Expected<Tokenizer> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  KV8_ASSIGN_OR_RETURN(auto model, load_gguf_tokenizer(vocabulary));
  return Tokenizer(std::move(model));
}

Expected<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options,
                                                 TextBudget* budget) const {
  TextBudget own;
  if (budget == nullptr) budget = &own;
  budget->add_input(text.size());
  if (is_valid_utf8(text)) return Encoder(*model_, options, *budget).run(text);
  return Encoder(*model_, options, *budget).run(replace_invalid_utf8(text));
}

Expected<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string out;
  DecoderRun run(model_->decoder);
  for (const int32_t id : ids) {
    if (!model_->is_token(id) || (skip_special_tokens && model_->is_special(id))) continue;
    KV8_RETURN_IF_ERROR(run.push(model_->token_text(id), out));
  }
  KV8_RETURN_IF_ERROR(run.flush(out));
  return out;
}

int32_t Tokenizer::vocab_size() const {
  return std::max(model_->bpe.vocabulary().size(), model_->added.size());
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = model_->find(token);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::string_view Tokenizer::token_text(int32_t id) const {
  return model_->token_text(id);
}
bool Tokenizer::is_special(int32_t id) const {
  return model_->is_special(id);
}
std::optional<int32_t> Tokenizer::bos_id() const {
  return model_->bos_id;
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return model_->eos_id;
}

}  // namespace kv8::text
