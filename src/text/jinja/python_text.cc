#include "text/jinja/python_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/failure.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

void append_escaped(std::string& out, char32_t character, char quote) {
  switch (character) {
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (character == static_cast<char32_t>(quote)) {
    out += '\\';
    out += quote;
  } else if (is_printable(character)) {
    append_character(out, character);
  } else if (character < 0x100) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(character));
  } else if (character < 0x10000) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(character));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(character));
  }
}

void append_repr(std::string& out, const Value& value);

void append_items(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i]);
  }
}

void append_dict(std::string& out, const Dict& dict) {
  out += '{';
  for (size_t i = 0; i < dict.pairs().size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, dict.pairs()[i].first);
    out += ": ";
    append_repr(out, dict.pairs()[i].second);
  }
  out += '}';
}

void append_repr(std::string& out, const Value& value) {
  spend_steps(1);
  switch (value.kind()) {
    case Value::Kind::none:
      out += "None";
      break;
    case Value::Kind::undefined:
      out += "Undefined";
      break;
    case Value::Kind::boolean:
      out += value.boolean() ? "True" : "False";
      break;
    case Value::Kind::integer:
      out += std::to_string(value.integer());
      break;
    case Value::Kind::floating:
      out += float_repr(value.number());
      break;
    case Value::Kind::string:
      out += repr(value.string());
      break;
    case Value::Kind::list:
      out += '[';
      append_items(out, value.sequence().items);
      out += ']';
      break;
    case Value::Kind::tuple:
      out += '(';
      append_items(out, value.sequence().items);
      out += value.sequence().items.size() == 1 ? ",)" : ")";
      break;
    case Value::Kind::dict:
      append_dict(out, value.dict());
      break;
    case Value::Kind::range: {
      const Range& range = value.range();
      out += fmt::format("range({}, {}", range.start, range.stop);
      out += range.step == 1 ? ")" : fmt::format(", {})", range.step);
      break;
    }
    case Value::Kind::generator:
      out += "<generator object>";
      break;
    case Value::Kind::object:
      out += value.object().repr();
      break;
  }
  check_fits(out.size());  // a value that holds another many times over prints much larger than it is
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    spend_steps(1);
    switch (value.kind()) {
      case Value::Kind::none:
        out_ += "null";
        break;
      case Value::Kind::boolean:
        out_ += value.boolean() ? "true" : "false";
        break;
      case Value::Kind::integer:
        out_ += std::to_string(value.integer());
        break;
      case Value::Kind::floating:
        out_ += number(value.number());
        break;
      case Value::Kind::string:
        write_string(value.string());
        break;
      case Value::Kind::list:
      case Value::Kind::tuple:
        write_list(value.sequence().items);
        break;
      case Value::Kind::dict:
        write_dict(value.dict());
        break;
      default:
        fail("Object of type {} is not JSON serializable", type_name(value));
    }
    check_fits(out_.size());
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_repr(value);
  }

  void new_line() {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += *style_.indent;
    check_fits(out_.size());
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write(items[i]);
    }
    --depth_;
    new_line();
    out_ += ']';
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Value::Kind::string:
        return key.string();
      case Value::Kind::none:
        return "null";
      case Value::Kind::boolean:
        return key.boolean() ? "true" : "false";
      case Value::Kind::integer:
        return std::to_string(key.integer());
      case Value::Kind::floating:
        return number(key.number());
      default:
        fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void write_dict(const Dict& dict) {
    if (dict.pairs().empty()) {
      out_ += "{}";
      return;
    }
    std::vector<std::pair<std::string, const Value*>> pairs;
    pairs.reserve(dict.pairs().size());
    for (const auto& [key, value] : dict.pairs()) pairs.emplace_back(key_text(key), &value);
    if (style_.sort_keys) {
      std::stable_sort(pairs.begin(), pairs.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < pairs.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write_string(pairs[i].first);
      out_ += style_.key_separator;
      write(*pairs[i].second);
    }
    --depth_;
    new_line();
    out_ += '}';
  }

  void write_string(const std::string& text) {
    out_ += '"';
    for (size_t offset = 0; offset < text.size();) write_character(next_character(text, offset));
    out_ += '"';
  }

  void write_character(char32_t character) {
    static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kEscape = "\"\\nrtfb";
    const size_t at = character < 0x80 ? kPlain.find(static_cast<char>(character)) : std::string_view::npos;
    if (at != std::string_view::npos) {
      out_ += '\\';
      out_ += kEscape[at];
    } else if (character >= 0x20 && (character < 0x80 || !style_.ensure_ascii)) {
      append_character(out_, character);
    } else if (character < 0x10000) {
      out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(character));
    } else {
      const auto rest = static_cast<uint32_t>(character) - 0x10000;
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }

  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  constexpr double kFixedAbove = 1e-4;
  constexpr double kFixedBelow = 1e16;
  const double size = std::fabs(value);
  const bool fixed = size == 0 || (size >= kFixedAbove && size < kFixedBelow);
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string repr(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t offset = 0; offset < text.size();) append_escaped(out, next_character(text, offset), quote);
  return out + quote;
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return {};
  return repr(value);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace kv8::text::jinja
