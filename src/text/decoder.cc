#include "text/decoder.h"

#include "text/decoder_stages.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

constexpr std::string_view kLowerBlock = "\xE2\x96\x81";  // U+2581, SentencePiece's space

bool is_one_character(std::string_view text) {
  return !text.empty() && utf8_length(text[0]) == text.size();
}

Expected<std::string> one_character(const JsonObject& spec, std::string_view key, std::string fallback) {
  KV8_ASSIGN_OR_RETURN(std::string text, spec.string_or(key, std::move(fallback)));
  if (!is_one_character(text)) {
    return make_error(ErrorCode::corrupt_data, "{}: expected one character, found \"{}\"", spec.field(key),
                      text);
  }
  return text;
}

}  // namespace

std::vector<Decoder::NamedStage> Decoder::start() const {
  std::vector<NamedStage> stages;
  stages.reserve(factories_.size());
  for (const auto& [where, factory] : factories_) stages.push_back({where, factory()});
  return stages;
}

void Decoder::add_whole_token(const std::string& where, Factory factory) {
  if (joined_) add(where, hold_stage);
  add(where, std::move(factory));
}

Expected<Decoder> Decoder::from_json(const Json& spec, std::string_view source) {
  Decoder result;
  if (spec.is_null()) {
    result.add(fmt::format("{}: decoder", source), join_stage);
  } else {
    KV8_RETURN_IF_ERROR(result.add_json(spec, source, "decoder"));
  }
  return result;
}

Decoder Decoder::byte_level() {
  Decoder result;
  result.add("decoder (byte level)", byte_level_stage);
  return result;
}

Decoder Decoder::sentence_piece(bool strip_leading_space) {
  Decoder result;
  auto space = std::make_shared<Pattern>();
  space->literal = kLowerBlock;
  const std::string where = "decoder (SentencePiece)";
  result.add(where, [space] { return replace_stage(space, " "); });
  result.add(where, byte_fallback_stage);
  result.add(where, fuse_stage);
  if (strip_leading_space) result.add(where, [] { return strip_stage(" ", 1, 0); });
  return result;
}

Status Decoder::add_json(const Json& spec, std::string_view source, const std::string& path) {
  KV8_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::from(spec, std::string(source), path));
  KV8_ASSIGN_OR_RETURN(const std::string type, object.string("type"));
  const std::string where = fmt::format("{}: {} ({})", source, path, type);
  if (type == "Sequence") {
    const Json* list = object.find("decoders");
    if (list == nullptr || !list->is_array()) {
      return make_error(ErrorCode::corrupt_data, "{}: expected a list", object.field("decoders"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KV8_RETURN_IF_ERROR(add_json((*list)[i], source, fmt::format("{}.decoders[{}]", path, i)));
    }
  } else if (type == "ByteLevel") {
    add_whole_token(where, byte_level_stage);
    joined_ = true;
  } else if (type == "ByteFallback") {
    add_whole_token(where, byte_fallback_stage);
    joined_ = false;
  } else if (type == "Fuse") {
    add(where, fuse_stage);
    joined_ = true;
  } else if (type == "Replace") {
    KV8_ASSIGN_OR_RETURN(Pattern parsed, Pattern::from_json(object, "pattern"));
    KV8_ASSIGN_OR_RETURN(std::string content, object.string("content"));
    const auto pattern = std::make_shared<const Pattern>(std::move(parsed));
    Factory factory = [pattern, content = std::move(content)] { return replace_stage(pattern, content); };
    if (!pattern->regex && is_one_character(pattern->literal)) {
      add(where, std::move(factory));
    } else {
      add_whole_token(where, std::move(factory));
    }
  } else if (type == "Strip") {
    KV8_ASSIGN_OR_RETURN(const std::string character, one_character(object, "content", " "));
    KV8_ASSIGN_OR_RETURN(const int64_t start, object.integer_or("start", 0, 0, int64_t{1} << 31));
    KV8_ASSIGN_OR_RETURN(const int64_t stop, object.integer_or("stop", 0, 0, int64_t{1} << 31));
    add(where, [character, start, stop] {
      return strip_stage(character, static_cast<size_t>(start), static_cast<size_t>(stop));
    });
  } else if (type == "Metaspace") {
    KV8_ASSIGN_OR_RETURN(const std::string replacement,
                         one_character(object, "replacement", std::string(kLowerBlock)));
    KV8_ASSIGN_OR_RETURN(const bool old_prefix, object.boolean_or("add_prefix_space", true));
    KV8_ASSIGN_OR_RETURN(const std::string scheme,
                         object.string_or("prepend_scheme", old_prefix ? "always" : "never"));
    add(where, [replacement, drop = scheme != "never"] { return metaspace_stage(replacement, drop); });
  } else {
    return make_error(
        ErrorCode::unsupported,
        "{}: decoder \"{}\" isn't supported; kv8 has Sequence, ByteLevel, ByteFallback, Fuse, Replace, "
        "Strip and Metaspace",
        object.field("type"), type);
  }
  return {};
}

Status DecoderRun::feed(size_t stage, Fragment fragment, std::string& out) {
  if (stage == stages_.size()) {
    out += fragment.text;
    return {};
  }
  budget_.enter(stages_[stage].where);
  return stages_[stage].stage->push(std::move(fragment), budget_,
                                    [&](Fragment next) { return passed_on(stage, std::move(next), out); });
}

Status DecoderRun::passed_on(size_t stage, Fragment fragment, std::string& out) {
  stages_[stage].bytes += fragment.text.size();
  budget_.enter(stages_[stage].where);
  KV8_RETURN_IF_ERROR(budget_.check_size(stages_[stage].bytes));
  return feed(stage + 1, std::move(fragment), out);
}

Status DecoderRun::push(std::string_view token_text, std::string& out) {
  budget_.add_input(token_text.size());
  return feed(0, {std::string(token_text), true}, out);
}

Status DecoderRun::flush(std::string& out) {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    KV8_RETURN_IF_ERROR(
        stages_[stage].stage->flush([&](Fragment next) { return passed_on(stage, std::move(next), out); }));
  }
  return {};
}

}  // namespace kv8::text
