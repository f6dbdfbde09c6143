// A TokenizerModel from a GGUF file's vocabulary.
#include <algorithm>
#include <cmath>
#include <limits>

#include "text/gguf_pre_tokenizers.h"
#include "text/tokenizer_model.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

constexpr std::string_view kLowerBlock = "\xE2\x96\x81";  // U+2581, SentencePiece's space
// Longer tokens don't come about by merging: no vocabulary has them, and a damaged file's would take forever.
constexpr size_t kMaxMergedBytes = 512;

class Loader {
 public:
  explicit Loader(const GgufVocabulary& file) : file_(file), model_(std::make_shared<TokenizerModel>()) {}

  Expected<std::shared_ptr<const TokenizerModel>> run() {
    KV8_RETURN_IF_ERROR(check_sizes());
    KV8_ASSIGN_OR_RETURN(Vocabulary vocabulary, build_vocabulary());
    if (file_.model == "gpt2") {
      KV8_RETURN_IF_ERROR(load_byte_level(std::move(vocabulary)));
    } else if (file_.model == "llama") {
      KV8_RETURN_IF_ERROR(load_sentence_piece(std::move(vocabulary)));
    } else {
      return make_error(ErrorCode::unsupported,
                        "{}: tokenizer.ggml.model: \"{}\" isn't supported; kv8 has gpt2 and llama",
                        file_.source, file_.model);
    }
    KV8_RETURN_IF_ERROR(add_special_tokens());
    return std::shared_ptr<const TokenizerModel>(std::move(model_));
  }

 private:
  GgufTokenType type_of(size_t id) const {
    return file_.token_types.empty() ? GgufTokenType::normal
                                     : static_cast<GgufTokenType>(file_.token_types[id]);
  }

  Status check_sizes() const {
    const size_t tokens = file_.tokens.size();
    if (tokens == 0 || tokens > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 2) {
      return make_error(ErrorCode::corrupt_data, "{}: tokenizer.ggml.tokens: {} tokens", file_.source,
                        tokens);
    }
    if (!file_.token_types.empty() && file_.token_types.size() != tokens) {
      return make_error(ErrorCode::corrupt_data,
                        "{}: tokenizer.ggml.token_type: expected {} entries, found {}", file_.source, tokens,
                        file_.token_types.size());
    }
    if (file_.model == "llama" && file_.scores.size() != tokens) {
      return make_error(ErrorCode::corrupt_data, "{}: tokenizer.ggml.scores: expected {} entries, found {}",
                        file_.source, tokens, file_.scores.size());
    }
    return {};
  }

  Expected<Vocabulary> build_vocabulary() const {
    std::string texts;
    std::vector<Vocabulary::Entry> entries;
    entries.reserve(file_.tokens.size());
    for (const std::string& token : file_.tokens) {
      const std::string text = is_valid_utf8(token) ? token : replace_invalid_utf8(token);
      if (texts.size() + text.size() >= std::numeric_limits<uint32_t>::max()) {
        return make_error(ErrorCode::corrupt_data, "{}: tokenizer.ggml.tokens: more than 4 GB of text",
                          file_.source);
      }
      entries.push_back({static_cast<uint32_t>(texts.size()), static_cast<uint32_t>(text.size()),
                         static_cast<int32_t>(entries.size())});
      texts += text;
    }
    return Vocabulary::build(std::move(texts), std::move(entries), file_.source);
  }

  Status load_byte_level(Vocabulary vocabulary) {
    const GgufPreTokenizer* recipe = find_gguf_pre_tokenizer(file_.pre);
    if (recipe == nullptr) {
      return make_error(ErrorCode::unsupported,
                        "{}: tokenizer.ggml.pre: \"{}\" is none of the pre-tokenizers that kv8 has",
                        file_.source, file_.pre);
    }
    const std::string where = fmt::format("{}: tokenizer.ggml.pre \"{}\"", file_.source, file_.pre);
    if (recipe->nfc) {
      model_->normalizer.add(where, [](std::string& text, TextBudget& /*budget*/) -> Status {
        normalize_unicode(text, NormalForm::nfc);
        return {};
      });
    }
    for (const std::string_view pattern : recipe->patterns) {
      KV8_ASSIGN_OR_RETURN(Regex regex, Regex::compile(pattern, where));
      model_->pre_tokenizer.add(where, split_step(std::move(regex), SplitBehavior::isolated));
    }
    model_->pre_tokenizer.add(where, byte_alphabet_step(file_.add_space_prefix.value_or(false)));
    model_->decoder = Decoder::byte_level();
    add_bos_ = recipe->add_bos;

    MergeTable merges(file_.merges.size());
    for (size_t i = 0; i < file_.merges.size(); ++i) {
      const std::string_view line = file_.merges[i];
      const size_t space = line.find(' ', 1);
      if (space == std::string_view::npos) {
        return make_error(ErrorCode::corrupt_data,
                          "{}: tokenizer.ggml.merges[{}]: expected two texts with a space between",
                          file_.source, i);
      }
      const std::string_view left = line.substr(0, space);
      const std::string_view right = line.substr(space + 1);
      const int32_t left_id = vocabulary.find(left);
      const int32_t right_id = vocabulary.find(right);
      const int32_t id = vocabulary.find(std::string(left).append(right));
      // Converters leave merges of removed tokens behind; they can never happen.
      if (left_id == kNoToken || right_id == kNoToken || id == kNoToken) continue;
      if (merges.find(left_id, right_id) == nullptr)
        merges.insert(left_id, right_id, {static_cast<uint32_t>(i), id});
    }
    BpeOptions options;
    options.ignore_merges = recipe->ignore_merges;
    model_->bpe = Bpe(std::move(vocabulary), std::move(merges), options);
    return {};
  }

  // SentencePiece merges any two neighbours whose texts together are a token, the highest score first. As a
  // table: every way to cut a token into two tokens, ranked by the token's score.
  Status load_sentence_piece(Vocabulary vocabulary) {
    KV8_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks, ranks_by_score());
    struct Pair {
      int32_t left = 0;
      int32_t right = 0;
      MergeTable::Merge merge;
    };
    std::vector<Pair> pairs;
    for (size_t id = 0; id < file_.tokens.size(); ++id) {
      if (!takes_part_in_merges(id)) continue;
      const std::string_view text = vocabulary.text(static_cast<int32_t>(id));
      if (text.empty() || text.size() > kMaxMergedBytes) continue;
      for (size_t cut = utf8_length(text[0]); cut < text.size(); cut += utf8_length(text[cut])) {
        const int32_t left = vocabulary.find(text.substr(0, cut));
        const int32_t right = vocabulary.find(text.substr(cut));
        if (left == kNoToken || right == kNoToken || !takes_part_in_merges(static_cast<size_t>(left)) ||
            !takes_part_in_merges(static_cast<size_t>(right))) {
          continue;
        }
        pairs.push_back({left, right, {ranks[id], static_cast<int32_t>(id)}});
      }
    }
    MergeTable merges(pairs.size());
    for (const Pair& pair : pairs) merges.insert(pair.left, pair.right, pair.merge);

    const bool space_prefix = file_.add_space_prefix.value_or(true);
    const std::string where = fmt::format("{}: tokenizer.ggml.model \"{}\"", file_.source, file_.model);
    model_->normalizer.add(where, [space_prefix](std::string& text, TextBudget& budget) {
      if (space_prefix && !text.empty()) text.insert(0, " ");
      return replace_all(text, " ", kLowerBlock, budget);
    });
    model_->decoder = Decoder::sentence_piece(space_prefix);
    add_bos_ = true;
    BpeOptions options;
    options.byte_fallback = true;
    options.unknown =
        file_.unknown_id && vocabulary.contains(*file_.unknown_id) ? *file_.unknown_id : kNoToken;
    model_->bpe = Bpe(std::move(vocabulary), std::move(merges), options);
    return {};
  }

  bool takes_part_in_merges(size_t id) const {
    const GgufTokenType type = type_of(id);
    return type != GgufTokenType::control && type != GgufTokenType::unknown && type != GgufTokenType::byte;
  }

  // Equal scores are one rank: the leftmost pair merges first then.
  Expected<std::vector<uint32_t>> ranks_by_score() const {
    std::vector<float> scores = file_.scores;
    for (size_t id = 0; id < scores.size(); ++id) {
      if (std::isnan(scores[id])) {
        return make_error(ErrorCode::corrupt_data, "{}: tokenizer.ggml.scores[{}]: not a number",
                          file_.source, id);
      }
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    std::vector<uint32_t> ranks;
    ranks.reserve(file_.scores.size());
    for (const float score : file_.scores) {
      const auto place = std::lower_bound(scores.begin(), scores.end(), score, std::greater<>());
      ranks.push_back(static_cast<uint32_t>(place - scores.begin()));
    }
    return ranks;
  }

  Status add_special_tokens() {
    std::vector<AddedToken> added;
    for (size_t id = 0; id < file_.tokens.size(); ++id) {
      const GgufTokenType type = type_of(id);
      const bool special = type == GgufTokenType::control || type == GgufTokenType::unknown;
      if (!special && type != GgufTokenType::user_defined) continue;
      AddedToken token;
      token.id = static_cast<int32_t>(id);
      token.content = model_->bpe.vocabulary().text(token.id);
      token.special = special;
      added.push_back(std::move(token));
    }
    KV8_ASSIGN_OR_RETURN(model_->added,
                         AddedTokens::build(std::move(added), model_->normalizer, file_.source));
    KV8_ASSIGN_OR_RETURN(model_->bos_id, checked_id("bos_token_id", file_.bos_id));
    KV8_ASSIGN_OR_RETURN(model_->eos_id, checked_id("eos_token_id", file_.eos_id));
    if (file_.add_bos.value_or(false) && !model_->bos_id) return missing_id("add_bos_token", "bos_token_id");
    if (file_.add_eos.value_or(false) && !model_->eos_id) return missing_id("add_eos_token", "eos_token_id");
    if (file_.add_bos.value_or(add_bos_) && model_->bos_id) model_->prefix.push_back(*model_->bos_id);
    if (file_.add_eos.value_or(false)) model_->suffix.push_back(*model_->eos_id);
    return {};
  }

  Expected<std::optional<int32_t>> checked_id(std::string_view key, std::optional<int32_t> id) const {
    if (id && !model_->is_token(*id)) {
      return make_error(ErrorCode::corrupt_data, "{}: tokenizer.ggml.{}: {} is no token; there are {}",
                        file_.source, key, *id, file_.tokens.size());
    }
    return id;
  }
  tl::unexpected<Error> missing_id(std::string_view flag, std::string_view id) const {
    return make_error(ErrorCode::corrupt_data,
                      "{}: tokenizer.ggml.{} is true, but tokenizer.ggml.{} is missing", file_.source, flag,
                      id);
  }

  const GgufVocabulary& file_;
  std::shared_ptr<TokenizerModel> model_;
  bool add_bos_ = false;
};

}  // namespace

Expected<std::shared_ptr<const TokenizerModel>> load_gguf_tokenizer(const GgufVocabulary& vocabulary) {
  return Loader(vocabulary).run();
}

}  // namespace kv8::text
