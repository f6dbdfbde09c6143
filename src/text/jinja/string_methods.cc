#include <algorithm>

#include "text/jinja/failure.h"
#include "text/jinja/methods.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;

// The part of a text between two optional arguments (start, stop) and the character index where it begins.
// nullopt when start lies behind the end, where Python finds not even the empty string.
struct Window {
  std::string_view text;
  int64_t start;
};
std::optional<Window> window(const std::string& text, Call arguments, size_t first) {
  const auto bound = [&](size_t index, int64_t fallback, int64_t length) {
    if (!arguments.has(index) || arguments[index].is_none()) return fallback;
    const int64_t value = arguments.integer(index);
    return value < 0 ? std::max<int64_t>(value + length, 0) : value;
  };
  if (!arguments.has(first) && !arguments.has(first + 1)) return Window{text, 0};
  const auto length = static_cast<int64_t>(character_count(text));
  const int64_t start = bound(first, 0, length);
  const int64_t stop = std::min(bound(first + 1, length, length), length);
  if (start > stop) return std::nullopt;
  const size_t begin = byte_offset(text, static_cast<size_t>(start));
  const std::string_view rest = std::string_view(text).substr(begin);
  return Window{rest.substr(0, byte_offset(rest, static_cast<size_t>(stop - start))), start};
}

// Character index of the first or last occurrence; -1 if there is none.
int64_t find_text(const Value& self, Call arguments, bool last) {
  const std::string wanted = arguments.text(0);
  const auto part = window(self.string(), arguments, 1);
  if (!part) return -1;
  const size_t at = last ? rfind(part->text, wanted) : find(part->text, wanted);
  if (at == std::string_view::npos) return -1;
  return part->start + static_cast<int64_t>(character_count(part->text.substr(0, at)));
}

Value found_or_fail(int64_t index) {
  if (index < 0) fail("substring not found");
  return Value(index);
}

bool has_affix(const Value& self, Call arguments, bool suffix) {
  const auto part = window(self.string(), arguments, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string())
      fail("{}() expects a string or a tuple of strings, not {}", arguments.function(), type_name(affix));
    if (!part) return false;
    return suffix ? part->text.ends_with(affix.string()) : part->text.starts_with(affix.string());
  };
  if (arguments[0].kind() != Value::Kind::tuple) return matches(arguments[0]);
  const auto& items = arguments[0].sequence().items;
  return std::any_of(items.begin(), items.end(), matches);
}

Value count(Interpreter&, const Value& self, Call arguments) {
  const std::string wanted = arguments.text(0);
  const auto part = window(self.string(), arguments, 1);
  if (!part) return Value(int64_t{0});
  if (wanted.empty()) return Value(static_cast<int64_t>(character_count(part->text)) + 1);
  int64_t found = 0;
  for (size_t at = find(part->text, wanted); at != std::string_view::npos;
       at = find(part->text, wanted, at)) {
    ++found;
    at += wanted.size();
  }
  return Value(found);
}

Value strip_method(const Value& self, Call arguments, bool left, bool right) {
  return Value(strip(self.string(), arguments.optional_text(0), left, right));
}

Value partition(const Value& self, Call arguments, bool last) {
  const std::string separator = arguments.text(0);
  if (separator.empty()) fail("empty separator");
  const std::string& text = self.string();
  const size_t at = last ? rfind(text, separator) : find(text, separator);
  if (at == std::string::npos) {
    if (last) return Value::tuple({Value(""), Value(""), self});
    return Value::tuple({self, Value(""), Value("")});
  }
  return Value::tuple(
      {Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))});
}

// Python's is...(): every character has the property, and there is at least one.
template <bool (*property)(char32_t)>
Value every_character(Interpreter&, const Value& self, Call) {
  const std::u32string text = decode(self.string());
  return Value(!text.empty() && std::all_of(text.begin(), text.end(), property));
}

bool is_alphanumeric(char32_t character) {
  return is_alphabetic(character) || is_numeric(character) || is_digit(character);
}

// isupper, islower: no cased character is of the other case, and at least one is of this.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value is_case(Interpreter&, const Value& self, Call) {
  const std::u32string text = decode(self.string());
  return Value(std::any_of(text.begin(), text.end(), wanted) &&
               std::none_of(text.begin(), text.end(), other) &&
               std::none_of(text.begin(), text.end(), is_title));
}

Value is_title_case(Interpreter&, const Value& self, Call) {
  bool inside_word = false;
  bool any = false;
  for (const char32_t character : decode(self.string())) {
    const bool starts = is_upper(character) || is_title(character);
    if (starts ? inside_word : is_lower(character) && !inside_word) return Value(false);
    inside_word = starts || is_lower(character);
    any = any || inside_word;
  }
  return Value(any);
}

Value is_identifier(Interpreter&, const Value& self, Call) {
  const std::u32string text = decode(self.string());
  return Value(!text.empty() && !is_numeric(text[0]) && std::all_of(text.begin(), text.end(), is_word));
}

Value join_method(Interpreter&, const Value& self, Call arguments) {
  const std::string& separator = self.string();
  std::string result;
  Iterator iterator(arguments[0]);
  for (int64_t i = 0; const auto item = iterator.next(); ++i) {
    if (!item->is_string()) fail("sequence item {}: expected str instance, {} found", i, type_name(*item));
    if (i > 0) result += separator;
    result += item->string();
    check_fits(result.size());
  }
  return Value(std::move(result));
}

Value expand_tabs(Interpreter&, const Value& self, Call arguments) {
  const int64_t size = arguments.integer(0, 8);
  std::string result;
  int64_t column = 0;
  for (const char32_t character : decode(self.string())) {
    if (character == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      check_fits(result.size() + static_cast<size_t>(spaces));
      result.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      append_character(result, character);
      column = character == '\n' || character == '\r' ? 0 : column + 1;
    }
  }
  return Value(std::move(result));
}

Value fill_zeros(Interpreter&, const Value& self, Call arguments) {
  const std::string& text = self.string();
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const std::string padded =
      pad(text.substr(sign ? 1 : 0), arguments.integer(0) - int64_t{sign}, Align::right, "0");
  return Value(text.substr(0, sign ? 1 : 0) + padded);
}

template <Align align>
Value align_method(Interpreter&, const Value& self, Call arguments) {
  return Value(pad(self.string(), arguments.integer(0), align, arguments.text(1, " ")));
}

template <std::string (*convert)(std::string_view)>
Value convert_method(Interpreter&, const Value& self, Call) {
  return Value(convert(self.string()));
}

Value remove_prefix(Interpreter&, const Value& self, Call arguments) {
  const std::string prefix = arguments.text(0);
  const std::string& text = self.string();
  return text.starts_with(prefix) ? Value(text.substr(prefix.size())) : self;
}

Value remove_suffix(Interpreter&, const Value& self, Call arguments) {
  const std::string suffix = arguments.text(0);
  const std::string& text = self.string();
  if (!text.ends_with(suffix)) return self;
  return Value(text.substr(0, text.size() - suffix.size()));
}

constexpr Native kStringMethods[] = {
    {"capitalize", "", convert_method<capitalize>},
    {"casefold", "", convert_method<to_lower>},
    {"center", "width fillchar?", align_method<Align::center>},
    {"count", "sub start? end?", count},
    {"endswith", "suffix start? end?",
     [](Interpreter&, const Value& self, Call arguments) { return Value(has_affix(self, arguments, true)); }},
    {"expandtabs", "tabsize?", expand_tabs},
    {"find", "sub start? end?",
     [](Interpreter&, const Value& self, Call arguments) {
       return Value(find_text(self, arguments, false));
     }},
    {"format", "*",
     [](Interpreter&, const Value& self, Call arguments) {
       return Value(brace_format(self.string(), arguments.all()));
     }},
    {"index", "sub start? end?",
     [](Interpreter&, const Value& self, Call arguments) {
       return found_or_fail(find_text(self, arguments, false));
     }},
    {"isalnum", "", every_character<is_alphanumeric>},
    {"isalpha", "", every_character<is_alphabetic>},
    {"isascii", "",
     [](Interpreter&, const Value& self, Call) {
       const std::string& text = self.string();
       return Value(std::all_of(text.begin(), text.end(),
                                [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
     }},
    {"isdecimal", "", every_character<is_decimal>},
    {"isdigit", "", every_character<is_digit>},
    {"isidentifier", "", is_identifier},
    {"islower", "", is_case<is_lower, is_upper>},
    {"isnumeric", "", every_character<is_numeric>},
    {"isprintable", "",
     [](Interpreter&, const Value& self, Call) {
       const std::u32string text = decode(self.string());
       return Value(std::all_of(text.begin(), text.end(), is_printable));
     }},
    {"isspace", "", every_character<is_space>},
    {"istitle", "", is_title_case},
    {"isupper", "", is_case<is_upper, is_lower>},
    {"join", "iterable", join_method},
    {"ljust", "width fillchar?", align_method<Align::left>},
    {"lower", "", convert_method<to_lower>},
    {"lstrip", "chars?",
     [](Interpreter&, const Value& self, Call arguments) {
       return strip_method(self, arguments, true, false);
     }},
    {"partition", "sep",
     [](Interpreter&, const Value& self, Call arguments) { return partition(self, arguments, false); }},
    {"removeprefix", "prefix", remove_prefix},
    {"removesuffix", "suffix", remove_suffix},
    {"replace", "old new count?",
     [](Interpreter&, const Value& self, Call arguments) {
       return Value(
           replace_all(self.string(), arguments.text(0), arguments.text(1), arguments.integer(2, -1)));
     }},
    {"rfind", "sub start? end?",
     [](Interpreter&, const Value& self, Call arguments) { return Value(find_text(self, arguments, true)); }},
    {"rindex", "sub start? end?",
     [](Interpreter&, const Value& self, Call arguments) {
       return found_or_fail(find_text(self, arguments, true));
     }},
    {"rjust", "width fillchar?", align_method<Align::right>},
    {"rpartition", "sep",
     [](Interpreter&, const Value& self, Call arguments) { return partition(self, arguments, true); }},
    {"rsplit", "sep? maxsplit?",
     [](Interpreter&, const Value& self, Call arguments) {
       return to_list(split_right(self.string(), arguments.optional_text(0), arguments.integer(1, -1)));
     }},
    {"rstrip", "chars?",
     [](Interpreter&, const Value& self, Call arguments) {
       return strip_method(self, arguments, false, true);
     }},
    {"split", "sep? maxsplit?",
     [](Interpreter&, const Value& self, Call arguments) {
       return to_list(split(self.string(), arguments.optional_text(0), arguments.integer(1, -1)));
     }},
    {"splitlines", "keepends?",
     [](Interpreter&, const Value& self, Call arguments) {
       return to_list(split_lines(self.string(), arguments.flag(0, false)));
     }},
    {"startswith", "prefix start? end?",
     [](Interpreter&, const Value& self, Call arguments) {
       return Value(has_affix(self, arguments, false));
     }},
    {"strip", "chars?",
     [](Interpreter&, const Value& self, Call arguments) {
       return strip_method(self, arguments, true, true);
     }},
    {"swapcase", "", convert_method<swap_case>},
    {"title", "", convert_method<to_title>},
    {"upper", "", convert_method<to_upper>},
    {"zfill", "width", fill_zeros},
};

}  // namespace

std::span<const Native> string_methods() {
  return kStringMethods;
}

}  // namespace kv8::text::jinja
