// A TokenizerModel from a tokenizer.json and, if there is one, its tokenizer_config.json.
#include <algorithm>
#include <optional>

#include "text/tokenizer_json_reader.h"
#include "text/tokenizer_model.h"

namespace kv8::text {

namespace {

Expected<BpeOptions> bpe_options(const JsonObject& model, const Vocabulary& vocabulary) {
  KV8_ASSIGN_OR_RETURN(const std::string type, model.string_or("type", "BPE"));
  if (type != "BPE") {
    return make_error(ErrorCode::unsupported, "{}: model \"{}\" isn't supported; kv8 has BPE",
                      model.field("type"), type);
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    KV8_ASSIGN_OR_RETURN(const std::string affix, model.string_or(key, ""));
    if (!affix.empty()) {
      return make_error(ErrorCode::unsupported, "{}: \"{}\" isn't supported; it must be empty",
                        model.field(key), affix);
    }
  }
  BpeOptions options;
  KV8_ASSIGN_OR_RETURN(options.ignore_merges, model.boolean_or("ignore_merges", false));
  KV8_ASSIGN_OR_RETURN(options.byte_fallback, model.boolean_or("byte_fallback", false));
  KV8_ASSIGN_OR_RETURN(options.fuse_unknown, model.boolean_or("fuse_unk", false));
  KV8_ASSIGN_OR_RETURN(const std::string unknown, model.string_or("unk_token", ""));
  if (!unknown.empty()) options.unknown = vocabulary.find(unknown);
  return options;
}

Expected<MergeTable> merge_table(const std::vector<TokenizerJson::MergeText>& merges, std::string_view texts,
                                 const Vocabulary& vocabulary, std::string_view source) {
  MergeTable table(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& merge = merges[i];
    const std::string_view left = texts.substr(merge.offset, merge.left_length);
    const std::string_view right = texts.substr(merge.offset + merge.left_length, merge.right_length);
    const std::string_view both = texts.substr(merge.offset, merge.left_length + merge.right_length);
    const int32_t left_id = vocabulary.find(left);
    const int32_t right_id = vocabulary.find(right);
    const int32_t id = vocabulary.find(both);
    if (left_id == kNoToken || right_id == kNoToken || id == kNoToken) {
      return make_error(ErrorCode::corrupt_data, "{}: model.merges[{}]: \"{}\" isn't in model.vocab", source,
                        i,
                        left_id == kNoToken    ? left
                        : right_id == kNoToken ? right
                                               : both);
    }
    table.insert(left_id, right_id, {static_cast<uint32_t>(i), id});
  }
  return table;
}

constexpr size_t kMaxAroundText = 1024;

// What a post-processor adds, as ids in front and behind.
class PostProcessor {
 public:
  PostProcessor(TokenizerModel& model, std::string_view source) : model_(model), source_(source) {}

  Status add(const Json& spec, const std::string& path) {
    KV8_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::from(spec, source_, path));
    KV8_ASSIGN_OR_RETURN(const std::string type, object.string("type"));
    if (type == "ByteLevel") return {};  // moves offsets only
    if (type == "TemplateProcessing") return add_template(object);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      KV8_ASSIGN_OR_RETURN(const int32_t cls, token_and_id(object, "cls"));
      KV8_ASSIGN_OR_RETURN(const int32_t sep, token_and_id(object, "sep"));
      return surround({cls}, {sep}, object.field("type"));
    }
    if (type == "Sequence") {
      const Json* list = object.find("processors");
      if (list == nullptr || !list->is_array()) {
        return make_error(ErrorCode::corrupt_data, "{}: expected a list", object.field("processors"));
      }
      for (size_t i = 0; i < list->size(); ++i) {
        KV8_RETURN_IF_ERROR(add((*list)[i], fmt::format("{}.processors[{}]", path, i)));
      }
      return {};
    }
    return make_error(
        ErrorCode::unsupported,
        "{}: post-processor \"{}\" isn't supported; kv8 has Sequence, TemplateProcessing, ByteLevel, "
        "BertProcessing and RobertaProcessing",
        object.field("type"), type);
  }

 private:
  tl::unexpected<Error> no_such_token(const std::string& field, const Json& found) const {
    return make_error(ErrorCode::corrupt_data, "{}: expected a token of this vocabulary, found {}", field,
                      found.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
  }

  // ["</s>", 2]
  Expected<int32_t> token_and_id(const JsonObject& object, std::string_view key) const {
    const Json* pair = object.find(key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_unsigned()) {
      return make_error(ErrorCode::corrupt_data, "{}: expected a token and its id", object.field(key));
    }
    const auto id = (*pair)[1].get<uint64_t>();
    if (id > INT32_MAX || !model_.is_token(static_cast<int32_t>(id)))
      return no_such_token(object.field(key), *pair);
    return static_cast<int32_t>(id);
  }

  // "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], ids under "special_tokens".
  Status add_template(const JsonObject& object) {
    const Json* list = object.find("single");
    if (list == nullptr || !list->is_array()) {
      return make_error(ErrorCode::corrupt_data, "{}: expected a list", object.field("single"));
    }
    KV8_ASSIGN_OR_RETURN(const JsonObject tokens, object.object("special_tokens"));
    std::vector<int32_t> before;
    std::vector<int32_t> after;
    bool seen_text = false;
    for (const Json& item : *list) {
      if (item.is_object() && item.contains("Sequence")) {
        if (seen_text)
          return make_error(ErrorCode::unsupported, "{}: the text comes twice", object.field("single"));
        seen_text = true;
        continue;
      }
      if (!item.is_object() || !item.contains("SpecialToken") || !item["SpecialToken"].is_object()) {
        return make_error(ErrorCode::corrupt_data, "{}: expected entries SpecialToken and Sequence",
                          object.field("single"));
      }
      KV8_ASSIGN_OR_RETURN(const JsonObject special,
                           JsonObject::from(item["SpecialToken"], source_, object.field("single")));
      KV8_ASSIGN_OR_RETURN(const std::string name, special.string("id"));
      KV8_ASSIGN_OR_RETURN(const JsonObject token, tokens.object(name));
      KV8_ASSIGN_OR_RETURN(const auto ids, token.integers_or_empty("ids", 0, INT32_MAX));
      if (before.size() + after.size() + ids.size() > kMaxAroundText) {
        return make_error(ErrorCode::corrupt_data, "{}: more than {} tokens around a text",
                          object.field("single"), kMaxAroundText);
      }
      for (const int64_t id : ids) {
        if (!model_.is_token(static_cast<int32_t>(id))) return no_such_token(token.field("ids"), id);
        (seen_text ? after : before).push_back(static_cast<int32_t>(id));
      }
    }
    if (!seen_text)
      return make_error(ErrorCode::unsupported, "{}: the text is missing", object.field("single"));
    return surround(before, after, object.field("single"));
  }

  // Processors may name each other's tokens over and over; a model has one or two.
  Status surround(const std::vector<int32_t>& before, const std::vector<int32_t>& after,
                  const std::string& where) {
    if (model_.prefix.size() + before.size() + model_.suffix.size() + after.size() > kMaxAroundText) {
      return make_error(ErrorCode::corrupt_data, "{}: more than {} tokens around a text", where,
                        kMaxAroundText);
    }
    model_.prefix.insert(model_.prefix.begin(), before.begin(), before.end());
    model_.suffix.insert(model_.suffix.end(), after.begin(), after.end());
    return {};
  }

  TokenizerModel& model_;
  std::string source_;
};

// tokenizer_config.json's "bos_token": "<s>" or {"content": "<s>", ...}; one that isn't in the vocabulary is
// none.
Expected<std::optional<int32_t>> config_token(const JsonObject& config, std::string_view key,
                                              const TokenizerModel& model) {
  const Json* value = config.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object() && value->contains("content")) value = &(*value)["content"];
  if (!value->is_string()) {
    return make_error(ErrorCode::corrupt_data, "{}: expected a token's text", config.field(key));
  }
  const int32_t id = model.find(value->get_ref<const std::string&>());
  return id == kNoToken ? std::nullopt : std::optional(id);
}

Status apply_config(const Json& json, TokenizerModel& model) {
  KV8_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::from(json, "tokenizer_config.json"));
  KV8_ASSIGN_OR_RETURN(const auto bos, config_token(config, "bos_token", model));
  KV8_ASSIGN_OR_RETURN(const auto eos, config_token(config, "eos_token", model));
  if (bos) model.bos_id = bos;
  if (eos) model.eos_id = eos;
  // An explicit choice wins over the post-processor's, in either direction.
  if (config.has("add_bos_token") && bos) {
    KV8_ASSIGN_OR_RETURN(const bool wanted, config.boolean_or("add_bos_token", false));
    const bool present = !model.prefix.empty() && model.prefix.front() == *bos;
    if (wanted && !present) model.prefix.insert(model.prefix.begin(), *bos);
    if (!wanted && present) model.prefix.erase(model.prefix.begin());
  }
  if (config.has("add_eos_token") && eos) {
    KV8_ASSIGN_OR_RETURN(const bool wanted, config.boolean_or("add_eos_token", false));
    const bool present = !model.suffix.empty() && model.suffix.back() == *eos;
    if (wanted && !present) model.suffix.push_back(*eos);
    if (!wanted && present) model.suffix.pop_back();
  }
  return {};
}

}  // namespace

Expected<std::shared_ptr<const TokenizerModel>> load_json_tokenizer(std::string_view json,
                                                                    std::string_view source,
                                                                    const Json* config) {
  KV8_ASSIGN_OR_RETURN(TokenizerJson file, read_tokenizer_json(json, source));
  KV8_ASSIGN_OR_RETURN(const JsonObject root, JsonObject::from(file.root, std::string(source)));
  KV8_ASSIGN_OR_RETURN(const JsonObject spec, root.object("model"));
  const auto component = [&](std::string_view key) -> const Json& {
    static const Json none;
    const Json* value = root.find(key);
    return value == nullptr ? none : *value;
  };

  auto model = std::make_shared<TokenizerModel>();
  KV8_ASSIGN_OR_RETURN(model->normalizer, Normalizer::from_json(component("normalizer"), source));
  KV8_ASSIGN_OR_RETURN(model->pre_tokenizer, PreTokenizer::from_json(component("pre_tokenizer"), source));
  KV8_ASSIGN_OR_RETURN(model->decoder, Decoder::from_json(component("decoder"), source));

  KV8_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::build(std::move(file.vocabulary_texts),
                                                                std::move(file.vocabulary), source));
  KV8_ASSIGN_OR_RETURN(const BpeOptions options, bpe_options(spec, vocabulary));
  KV8_ASSIGN_OR_RETURN(MergeTable merges, merge_table(file.merges, file.merge_texts, vocabulary, source));
  model->bpe = Bpe(std::move(vocabulary), std::move(merges), options);

  KV8_ASSIGN_OR_RETURN(std::vector<AddedToken> added, parse_added_tokens(component("added_tokens"), source));
  KV8_ASSIGN_OR_RETURN(model->added, AddedTokens::build(std::move(added), model->normalizer, source));
  if (const Json& processor = component("post_processor"); !processor.is_null()) {
    KV8_RETURN_IF_ERROR(PostProcessor(*model, source).add(processor, "post_processor"));
  }
  if (!model->prefix.empty()) model->bos_id = model->prefix.front();
  if (config != nullptr && !config->is_null()) KV8_RETURN_IF_ERROR(apply_config(*config, *model));
  return model;
}

}  // namespace kv8::text
