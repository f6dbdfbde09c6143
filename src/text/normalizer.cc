#include "text/normalizer.h"

#include <algorithm>

#include <utf8proc.h>

#include "text/byte_level.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

void lowercase(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t character = decode_utf8(text, i);
    if (character == 0x130) {  // the one letter whose lower case is two characters: i and a dot above
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
  }
  text = std::move(out);
}

void strip_accents(std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char32_t character = decode_utf8(text, i);
    if (!is_mark(character)) append_utf8(out, character);
  }
  text = std::move(out);
}

void strip(std::string& text, bool left, bool right) {
  if (right) text.resize(trailing_whitespace(text));
  if (left) text.erase(0, leading_whitespace(text));
}

// A step that can't fail, and whose text grows by a small factor at most.
template <class Change>
NormalizerStep rewrite(Change change) {
  return [change = std::move(change)](std::string& text, TextBudget& /*budget*/) -> Status {
    change(text);
    return {};
  };
}

// Marks of different combining classes have one canonical order. Only runs of marks move, and each is sorted
// on its own; utf8proc's own ordering is quadratic in a run's length.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto combining_class = [](utf8proc_int32_t character) {
    return utf8proc_get_property(character)->combining_class;
  };
  auto run = characters.begin();
  while (run != characters.end()) {
    if (*run < 0x300 || combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, characters.end(), [&](auto c) { return combining_class(c) == 0; });
    std::stable_sort(run, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

}  // namespace

void normalize_unicode(std::string& text, NormalForm form) {
  if (is_ascii(text)) return;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  int boundary = 0;
  for (size_t i = 0; i < text.size();) {
    const auto character = static_cast<utf8proc_int32_t>(decode_utf8(text, i));
    utf8proc_int32_t parts[32];  // the longest decomposition has 18 characters
    const auto count = utf8proc_decompose_char(character, parts, 32, options, &boundary);
    if (count < 0 || count > 32) {  // not a character utf8proc knows
      characters.push_back(character);
    } else {
      characters.insert(characters.end(), parts, parts + count);
    }
  }
  order_marks(characters);
  auto length = static_cast<utf8proc_ssize_t>(characters.size());
  if (compose) {
    length = utf8proc_normalize_utf32(characters.data(), length,
                                      static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  text.clear();
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(text, static_cast<char32_t>(characters[static_cast<size_t>(i)]));
  }
}

Status replace_all(std::string& text, std::string_view pattern, std::string_view content,
                   TextBudget& budget) {
  size_t match = text.find(pattern);
  if (match == std::string::npos) return {};
  std::string out;
  out.reserve(text.size());
  size_t from = 0;
  for (; match != std::string::npos; match = text.find(pattern, from)) {
    out.append(text, from, match - from);
    out += content;
    from = match + pattern.size();
    KV8_RETURN_IF_ERROR(budget.check_size(out.size()));
  }
  out.append(text, from);
  text = std::move(out);
  return {};
}

Expected<Pattern> Pattern::from_json(const JsonObject& owner, std::string_view key) {
  KV8_ASSIGN_OR_RETURN(const JsonObject object, owner.object(key));
  Pattern pattern;
  if (object.has("Regex")) {
    KV8_ASSIGN_OR_RETURN(const std::string source, object.string("Regex"));
    KV8_ASSIGN_OR_RETURN(pattern.regex, Regex::compile(source, object.field("Regex")));
    return pattern;
  }
  KV8_ASSIGN_OR_RETURN(pattern.literal, object.string("String"));
  if (pattern.literal.empty()) {
    return make_error(ErrorCode::corrupt_data, "{}: expected at least one character", object.field("String"));
  }
  return pattern;
}

Status Pattern::replace(std::string& text, std::string_view content, TextBudget& budget) const {
  if (!regex) return replace_all(text, literal, content, budget);
  std::string out;
  size_t from = 0;
  KV8_RETURN_IF_ERROR(regex->for_each(text, budget, [&](size_t begin, size_t end) {
    out.append(text, from, begin - from);
    out += content;
    from = end;
    return budget.check_size(out.size());
  }));
  out.append(text, from);
  text = std::move(out);
  return {};
}

Status Normalizer::apply(std::string& text, TextBudget& budget) const {
  for (const auto& [where, step] : steps_) {
    budget.enter(where);
    KV8_RETURN_IF_ERROR(step(text, budget));
    KV8_RETURN_IF_ERROR(budget.check_size(text.size()));
  }
  return {};
}

Expected<Normalizer> Normalizer::from_json(const Json& spec, std::string_view source) {
  Normalizer result;
  if (!spec.is_null()) KV8_RETURN_IF_ERROR(result.add_json(spec, source, "normalizer"));
  return result;
}

Status Normalizer::add_json(const Json& spec, std::string_view source, const std::string& path) {
  KV8_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::from(spec, std::string(source), path));
  KV8_ASSIGN_OR_RETURN(const std::string type, object.string("type"));
  const std::string where = fmt::format("{}: {} ({})", source, path, type);
  if (type == "Sequence") {
    const Json* list = object.find("normalizers");
    if (list == nullptr || !list->is_array()) {
      return make_error(ErrorCode::corrupt_data, "{}: expected a list", object.field("normalizers"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KV8_RETURN_IF_ERROR(add_json((*list)[i], source, fmt::format("{}.normalizers[{}]", path, i)));
    }
  } else if (type == "NFC") {
    add(where, rewrite([](std::string& text) { normalize_unicode(text, NormalForm::nfc); }));
  } else if (type == "NFD") {
    add(where, rewrite([](std::string& text) { normalize_unicode(text, NormalForm::nfd); }));
  } else if (type == "NFKC") {
    add(where, rewrite([](std::string& text) { normalize_unicode(text, NormalForm::nfkc); }));
  } else if (type == "NFKD") {
    add(where, rewrite([](std::string& text) { normalize_unicode(text, NormalForm::nfkd); }));
  } else if (type == "Lowercase") {
    add(where, rewrite(lowercase));
  } else if (type == "StripAccents") {
    add(where, rewrite(strip_accents));
  } else if (type == "ByteLevel") {
    add(where, rewrite([](std::string& text) { text = to_byte_alphabet(text); }));
  } else if (type == "Strip") {
    KV8_ASSIGN_OR_RETURN(const bool left, object.boolean_or("strip_left", true));
    KV8_ASSIGN_OR_RETURN(const bool right, object.boolean_or("strip_right", true));
    add(where, rewrite([left, right](std::string& text) { strip(text, left, right); }));
  } else if (type == "Prepend") {
    KV8_ASSIGN_OR_RETURN(std::string prefix, object.string("prepend"));
    add(where, rewrite([prefix = std::move(prefix)](std::string& text) {
          if (!text.empty()) text.insert(0, prefix);
        }));
  } else if (type == "Replace") {
    KV8_ASSIGN_OR_RETURN(Pattern pattern, Pattern::from_json(object, "pattern"));
    KV8_ASSIGN_OR_RETURN(std::string content, object.string("content"));
    add(where, [pattern = std::move(pattern), content = std::move(content)](
                   std::string& text, TextBudget& budget) { return pattern.replace(text, content, budget); });
  } else {
    return make_error(
        ErrorCode::unsupported,
        "{}: normalizer \"{}\" isn't supported; kv8 has Sequence, NFC, NFD, NFKC, NFKD, Lowercase, "
        "StripAccents, Strip, Prepend, Replace and ByteLevel",
        object.field("type"), type);
  }
  return {};
}

}  // namespace kv8::text
