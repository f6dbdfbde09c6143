#include <algorithm>

#include "text/jinja/failure.h"
#include "text/jinja/filters.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;

template <std::string (*convert)(std::string_view)>
Value convert_filter(Interpreter&, const Value& self, Call) {
  return Value(convert(to_text(self)));
}

// Unlike str.title(), words begin only after whitespace, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string result;
  std::string word;
  const auto finish = [&] {
    const size_t first = byte_offset(word, 1);
    result +=
        to_upper(std::string_view(word).substr(0, first)) + to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t offset = 0; offset < text.size();) {
    const char32_t character = next_character(text, offset);
    const bool separates = is_space(character) || character == '-' || character == '(' || character == '{' ||
                           character == '[' || character == '<';
    if (separates) finish();
    append_character(separates ? result : word, character);
  }
  finish();
  return result;
}

// Without Jinja2's Markup: what is escaped or declared safe is a plain string, which `+` joins as it is.
std::string escape_html(std::string_view text) {
  std::string result;
  for (const char character : text) {
    switch (character) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += character;
    }
  }
  return result;
}

std::string quote_url(std::string_view text, bool in_query) {
  std::string result;
  for (const char character : text) {
    const bool plain = is_ascii_digit(character) || (character >= 'a' && character <= 'z') ||
                       (character >= 'A' && character <= 'Z') ||
                       std::string_view("_.-~").find(character) != std::string_view::npos;
    if (plain || (character == '/' && !in_query)) {
      result += character;
    } else if (character == ' ' && in_query) {
      result += '+';
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(character);
      result += '%';
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  return result;
}

Value url_encode(Interpreter&, const Value& self, Call) {
  const bool iterable =
      self.kind() >= Value::Kind::list && (self.kind() != Value::Kind::object || self.object().items());
  if (!iterable) return Value(quote_url(to_text(self), false));
  std::vector<std::string> parts;
  const auto add = [&](const Value& key, const Value& value) {
    parts.push_back(fmt::format("{}={}", quote_url(to_text(key), true), quote_url(to_text(value), true)));
  };
  if (self.is_dict()) {
    for (const auto& [key, value] : self.dict().pairs()) add(key, value);
  } else {
    for (const Value& item : to_vector(self)) {
      const auto pair = to_vector(item);
      if (pair.size() != 2) fail("urlencode expects pairs, got {} values", pair.size());
      add(pair[0], pair[1]);
    }
  }
  return Value(join("&", parts));
}

// Most filters take anything by its text; these don't.
void require_text(const Value& self, std::string_view filter) {
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is_string()) fail("{} expects a string, not {}", filter, type_name(self));
}

Value indent(Interpreter&, const Value& self, Call arguments) {
  require_text(self, "indent");
  const Value width = arguments.value_or(0, Value(int64_t{4}));
  if (!width.is_string() && !width.is_integer())
    fail("indent() expects a number or a string, not {}", type_name(width));
  const std::string prefix = width.is_string() ? width.string() : pad("", width.integer(), Align::left);
  const bool first = arguments.flag(1, false);
  const bool blank = arguments.flag(2, false);
  const auto lines = split_lines(self.string() + "\n");
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) text += prefix;
    text += lines[i];
    check_fits(text.size());
  }
  return Value(std::move(text));
}

Value truncate(Interpreter&, const Value& self, Call arguments) {
  constexpr int64_t kDefaultLength = 255;
  constexpr int64_t kDefaultLeeway = 5;
  require_text(self, "truncate");
  const std::string& text = self.string();
  const int64_t length = arguments.integer(0, kDefaultLength);
  const std::string end = arguments.text(2, "...");
  const bool has_leeway = arguments.has(3) && !arguments[3].is_none();
  const int64_t leeway = has_leeway ? arguments.integer(3) : kDefaultLeeway;
  const auto end_length = static_cast<int64_t>(character_count(end));
  if (length < end_length) fail("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) fail("expected leeway >= 0, got {}", leeway);
  const auto size = static_cast<int64_t>(character_count(text));
  if (size <= length || size - length <= leeway) return self;
  std::string kept = text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!arguments.flag(1, false)) kept = split_right(kept, " ", 1)[0];
  return Value(kept + end);
}

Value count_words(Interpreter&, const Value& self, Call) {
  int64_t count = 0;
  bool inside = false;
  for (const char32_t character : decode(to_text(self))) {
    const bool word = is_word(character);
    count += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(count);
}

Value format(Interpreter&, const Value& self, Call arguments) {
  const Arguments& all = arguments.all();
  if (!all.positional.empty() && !all.keyword.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  if (all.keyword.empty()) return Value(percent_format(to_text(self), Value::tuple(all.positional)));
  std::vector<std::pair<Value, Value>> pairs;
  for (const auto& [name, value] : all.keyword) pairs.emplace_back(Value(name), value);
  return Value(percent_format(to_text(self), Value::dict(std::move(pairs))));
}

Value replace(Interpreter&, const Value& self, Call arguments) {
  const int64_t count = arguments.has(2) && !arguments[2].is_none() ? arguments.integer(2) : -1;
  return Value(replace_all(to_text(self), to_text(arguments[0]), to_text(arguments[1]), count));
}

constexpr int64_t kCenterWidth = 80;

constexpr Native kTextFilters[] = {
    {"capitalize", "", convert_filter<capitalize>},
    {"center", "width?",
     [](Interpreter&, const Value& self, Call arguments) {
       return Value(pad(to_text(self), arguments.integer(0, kCenterWidth), Align::center));
     }},
    {"e", "", convert_filter<escape_html>},
    {"escape", "", convert_filter<escape_html>},
    {"forceescape", "", convert_filter<escape_html>},
    {"format", "*", format},
    {"indent", "width? first? blank?", indent},
    {"lower", "", convert_filter<to_lower>},
    {"replace", "old new count?", replace},
    {"safe", "",
     [](Interpreter&, const Value& self, Call) { return self.is_string() ? self : Value(to_text(self)); }},
    {"string", "", [](Interpreter&, const Value& self, Call) { return Value(to_text(self)); }},
    {"title", "", convert_filter<title_words>},
    {"trim", "chars?",
     [](Interpreter&, const Value& self, Call arguments) {
       return Value(strip(to_text(self), arguments.optional_text(0)));
     }},
    {"truncate", "length? killwords? end? leeway?", truncate},
    {"upper", "", convert_filter<to_upper>},
    {"urlencode", "", url_encode},
    {"wordcount", "", count_words},
};

}  // namespace

std::span<const Native> text_filters() {
  return kTextFilters;
}

}  // namespace kv8::text::jinja
