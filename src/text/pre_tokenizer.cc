#include "text/pre_tokenizer.h"

#include <algorithm>
#include <memory>

#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

struct Part {
  Span span;
  bool separator = false;
};

void join_parts(std::vector<Part>& parts, SplitBehavior behavior, std::vector<Span>& out) {
  const auto emit = [&](const Span& span) {
    if (span.begin != span.end) out.push_back(span);
  };
  if (behavior == SplitBehavior::merged_with_next) {
    // A separator joins what follows it; of two in a row only the second does. Seen from the back, so that
    // "what follows" is already there.
    const size_t first = out.size();
    bool after_separator = false;
    std::vector<Span> joined;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      if (part->separator && !after_separator && !joined.empty()) {
        joined.back().begin = part->span.begin;
      } else {
        joined.push_back(part->span);
      }
      after_separator = part->separator;
    }
    for (const Span& span : joined) emit(span);
    std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
    return;
  }
  if (behavior == SplitBehavior::removed || behavior == SplitBehavior::isolated) {
    for (const Part& part : parts) {
      if (behavior == SplitBehavior::isolated || !part.separator) emit(part.span);
    }
    return;
  }
  bool after_separator = false;
  std::vector<Span> joined;
  for (const Part& part : parts) {
    const bool joins = behavior == SplitBehavior::contiguous ? part.separator == after_separator
                                                             : part.separator && !after_separator;
    if (joins && !joined.empty()) {
      joined.back().end = part.span.end;
    } else {
      joined.push_back(part.span);
    }
    after_separator = part.separator;
  }
  for (const Span& span : joined) emit(span);
}

// find(piece, callback) calls back with the begin and end of every separator.
template <class Find>
Status split_pieces(Pieces& pieces, SplitBehavior behavior, bool invert, const Find& find) {
  std::vector<Span> out;
  out.reserve(pieces.spans.size());
  std::vector<Part> parts;
  for (const Span& span : pieces.spans) {
    const std::string_view piece = pieces.piece(span);
    parts.clear();
    size_t from = 0;
    const auto add = [&](size_t begin, size_t end, bool separator) {
      parts.push_back({{span.begin + begin, span.begin + end}, separator != invert});
    };
    KV8_RETURN_IF_ERROR(find(piece, [&](size_t begin, size_t end) -> Status {
      if (begin != from) add(from, begin, false);
      add(begin, end, true);
      from = end;
      return {};
    }));
    if (from != piece.size()) add(from, piece.size(), false);
    join_parts(parts, behavior, out);
  }
  pieces.spans = std::move(out);
  return {};
}

// Every piece rewritten; change(piece, is at the start of the input, out) appends.
template <class Change>
Status rewrite_pieces(Pieces& pieces, TextBudget& budget, const Change& change) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (Span& span : pieces.spans) {
    const size_t begin = text.size();
    KV8_RETURN_IF_ERROR(change(pieces.piece(span), pieces.first && span.begin == 0, text));
    span = {begin, text.size()};
    KV8_RETURN_IF_ERROR(budget.check_size(text.size()));
  }
  pieces.text = std::move(text);
  return {};
}

PreTokenizerStep split_literal_step(std::string separator, SplitBehavior behavior, bool invert) {
  return [separator = std::move(separator), behavior, invert](Pieces& pieces, TextBudget& /*budget*/) {
    return split_pieces(pieces, behavior, invert, [&](std::string_view piece, auto callback) -> Status {
      for (size_t at = piece.find(separator); at != std::string_view::npos;
           at = piece.find(separator, at + separator.size())) {
        KV8_RETURN_IF_ERROR(callback(at, at + separator.size()));
      }
      return {};
    });
  };
}

Expected<SplitBehavior> split_behavior(const JsonObject& spec, std::string fallback) {
  KV8_ASSIGN_OR_RETURN(const std::string name, spec.string_or("behavior", std::move(fallback)));
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  return make_error(
      ErrorCode::corrupt_data,
      "{}: expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous, found \"{}\"",
      spec.field("behavior"), name);
}

}  // namespace

PreTokenizerStep split_step(Regex separator, SplitBehavior behavior, bool invert) {
  return [separator = std::move(separator), behavior, invert](Pieces& pieces, TextBudget& budget) {
    return split_pieces(pieces, behavior, invert, [&](std::string_view piece, auto callback) {
      return piece.empty() ? Status() : separator.for_each(piece, budget, callback);
    });
  };
}

PreTokenizerStep byte_alphabet_step(bool add_prefix_space) {
  return [add_prefix_space](Pieces& pieces, TextBudget& budget) {
    return rewrite_pieces(pieces, budget, [&](std::string_view piece, bool, std::string& out) -> Status {
      if (add_prefix_space && !piece.starts_with(' ')) out += to_byte_alphabet(" ");
      out += to_byte_alphabet(piece);
      return {};
    });
  };
}

Expected<PreTokenizer> PreTokenizer::from_json(const Json& spec, std::string_view source) {
  PreTokenizer result;
  if (!spec.is_null()) KV8_RETURN_IF_ERROR(result.add_json(spec, source, "pre_tokenizer"));
  return result;
}

Expected<Pieces> PreTokenizer::apply(std::string text, bool first, TextBudget& budget) const {
  Pieces pieces{std::move(text), {}, first};
  if (!pieces.text.empty()) pieces.spans.push_back({0, pieces.text.size()});
  for (const auto& [where, step] : steps_) {
    budget.enter(where);
    KV8_RETURN_IF_ERROR(step(pieces, budget));
  }
  return pieces;
}

Status PreTokenizer::add_metaspace(const JsonObject& spec, const std::string& where) {
  KV8_ASSIGN_OR_RETURN(const std::string replacement, spec.string_or("replacement", "\xE2\x96\x81"));
  if (replacement.empty()) {
    return make_error(ErrorCode::corrupt_data, "{}: expected one character", spec.field("replacement"));
  }
  KV8_ASSIGN_OR_RETURN(const bool old_prefix, spec.boolean_or("add_prefix_space", true));
  KV8_ASSIGN_OR_RETURN(const std::string scheme,
                       spec.string_or("prepend_scheme", old_prefix ? "always" : "never"));
  if (scheme != "always" && scheme != "never" && scheme != "first") {
    return make_error(ErrorCode::corrupt_data, "{}: expected always, never or first, found \"{}\"",
                      spec.field("prepend_scheme"), scheme);
  }
  KV8_ASSIGN_OR_RETURN(const bool split, spec.boolean_or("split", true));
  add(where, [replacement, always = scheme == "always", at_start = scheme == "first"](Pieces& pieces,
                                                                                      TextBudget& budget) {
    return rewrite_pieces(pieces, budget,
                          [&](std::string_view piece, bool first, std::string& out) -> Status {
                            std::string text(piece);
                            KV8_RETURN_IF_ERROR(replace_all(text, " ", replacement, budget));
                            if ((always || (at_start && first)) && !text.starts_with(replacement))
                              out += replacement;
                            out += text;
                            return {};
                          });
  });
  if (split) add(where, split_literal_step(replacement, SplitBehavior::merged_with_next, false));
  return {};
}

Status PreTokenizer::add_json(const Json& spec, std::string_view source, const std::string& path) {
  KV8_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::from(spec, std::string(source), path));
  KV8_ASSIGN_OR_RETURN(const std::string type, object.string("type"));
  const std::string where = fmt::format("{}: {} ({})", source, path, type);
  const auto add_regex = [&](std::string_view pattern, SplitBehavior behavior,
                             bool invert = false) -> Status {
    KV8_ASSIGN_OR_RETURN(Regex regex, Regex::compile(pattern, object.field("type")));
    add(where, split_step(std::move(regex), behavior, invert));
    return {};
  };
  if (type == "Sequence") {
    const Json* list = object.find("pretokenizers");
    if (list == nullptr || !list->is_array()) {
      return make_error(ErrorCode::corrupt_data, "{}: expected a list", object.field("pretokenizers"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KV8_RETURN_IF_ERROR(add_json((*list)[i], source, fmt::format("{}.pretokenizers[{}]", path, i)));
    }
  } else if (type == "Split") {
    KV8_ASSIGN_OR_RETURN(Pattern pattern, Pattern::from_json(object, "pattern"));
    KV8_ASSIGN_OR_RETURN(const SplitBehavior behavior, split_behavior(object, ""));
    KV8_ASSIGN_OR_RETURN(const bool invert, object.boolean_or("invert", false));
    add(where, pattern.regex ? split_step(std::move(*pattern.regex), behavior, invert)
                             : split_literal_step(std::move(pattern.literal), behavior, invert));
  } else if (type == "ByteLevel") {
    KV8_ASSIGN_OR_RETURN(const bool prefix, object.boolean_or("add_prefix_space", true));
    KV8_ASSIGN_OR_RETURN(const bool use_regex, object.boolean_or("use_regex", true));
    if (prefix && use_regex) {  // the space is part of what the pattern sees
      add(where, [](Pieces& pieces, TextBudget& budget) {
        return rewrite_pieces(pieces, budget, [](std::string_view piece, bool, std::string& out) -> Status {
          if (!piece.starts_with(' ')) out += ' ';
          out += piece;
          return {};
        });
      });
    }
    if (use_regex) KV8_RETURN_IF_ERROR(add_regex(kGpt2Pattern, SplitBehavior::isolated));
    add(where, byte_alphabet_step(prefix && !use_regex));
  } else if (type == "Metaspace") {
    return add_metaspace(object, where);
  } else if (type == "Digits") {
    KV8_ASSIGN_OR_RETURN(const bool individual, object.boolean_or("individual_digits", false));
    return add_regex(R"(\p{N})", individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "Punctuation") {
    KV8_ASSIGN_OR_RETURN(const SplitBehavior behavior, split_behavior(object, "Isolated"));
    return add_regex(R"([\p{P}$+<=>\^`|~])", behavior);
  } else if (type == "Whitespace") {
    return add_regex(R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)", SplitBehavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    return add_regex(R"(\s)", SplitBehavior::removed);
  } else if (type == "BertPreTokenizer") {
    KV8_RETURN_IF_ERROR(add_regex(R"(\s)", SplitBehavior::removed));
    return add_regex(R"([\p{P}$+<=>\^`|~])", SplitBehavior::isolated);
  } else if (type == "CharDelimiterSplit") {
    KV8_ASSIGN_OR_RETURN(std::string delimiter, object.string("delimiter"));
    if (delimiter.empty()) {
      return make_error(ErrorCode::corrupt_data, "{}: expected one character", object.field("delimiter"));
    }
    add(where, split_literal_step(std::move(delimiter), SplitBehavior::removed, false));
  } else {
    return make_error(
        ErrorCode::unsupported,
        "{}: pre-tokenizer \"{}\" isn't supported; kv8 has Sequence, Split, ByteLevel, Metaspace, Digits, "
        "Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer and CharDelimiterSplit",
        object.field("type"), type);
  }
  return {};
}

}  // namespace kv8::text
