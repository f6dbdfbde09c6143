#include "text/jinja/string_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/failure.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

constexpr int64_t kMaxPrecision = 1000;
constexpr int kMaxFieldDepth = 2;  // a specification may hold fields, those no further ones

// [[fill]align][sign][#][0][width][,][.precision][type] of str.format; % formatting fills in the same.
struct Specification {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

int64_t read_number(std::string_view text, size_t& at) {
  int64_t number = 0;
  while (at < text.size() && is_ascii_digit(text[at])) {
    number = number * 10 + (text[at++] - '0');
    if (number > int64_t{1} << 40) fail("a width or precision in {} is too large", repr(text));
  }
  return number;
}

std::string format_double(double value, char type, int64_t precision, bool alternate) {
  if (precision > kMaxPrecision) fail("a precision above {} isn't supported", kMaxPrecision);
  const std::string format = fmt::format("%{}.*{}", alternate ? "#" : "", type);
  const int size = std::snprintf(nullptr, 0, format.c_str(), static_cast<int>(precision), value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), format.c_str(), static_cast<int>(precision), value);
  text.pop_back();
  return text;
}

// The digits of |value| without sign.
std::string float_digits(double value, const Specification& spec) {
  const double size = std::fabs(value);
  constexpr int64_t kDefaultPrecision = 6;
  const int64_t precision = spec.precision < 0 ? kDefaultPrecision : spec.precision;
  switch (spec.type) {
    case 0:
      if (spec.precision < 0 || !std::isfinite(size)) return float_repr(size);
      {
        std::string text = format_double(size, 'g', std::max<int64_t>(precision, 1), spec.alternate);
        if (text.find_first_of(".e") == std::string::npos) text += ".0";
        return text;
      }
    case '%':
      return format_double(size * 100, 'f', precision, spec.alternate) + "%";
    case 'n':
      return format_double(size, 'g', precision, spec.alternate);
    default:
      return format_double(size, spec.type, precision, spec.alternate);
  }
}

std::string integer_digits(int64_t value, const Specification& spec) {
  const uint64_t size = value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const std::string_view prefix = spec.alternate ? "0" : "";
  switch (spec.type) {
    case 'x':
      return fmt::format("{}{}{:x}", prefix, spec.alternate ? "x" : "", size);
    case 'X':
      return fmt::format("{}{}{:X}", prefix, spec.alternate ? "X" : "", size);
    case 'o':
      return fmt::format("{}{}{:o}", prefix, spec.alternate ? "o" : "", size);
    case 'b':
      return fmt::format("{}{}{:b}", prefix, spec.alternate ? "b" : "", size);
    default:
      return std::to_string(size);
  }
}

void group_thousands(std::string& digits, char separator) {
  const size_t end =
      std::find_if(digits.begin(), digits.end(), [](char c) { return !is_ascii_digit(c); }) - digits.begin();
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
}

// '^' puts the odd space to the right, always; str.center doesn't.
std::string pad_aligned(std::string_view text, const Specification& spec, char align) {
  if (align == '>') return pad(text, spec.width, Align::right, spec.fill);
  if (align != '^') return pad(text, spec.width, Align::left, spec.fill);
  const auto length = static_cast<int64_t>(character_count(text));
  const int64_t before = std::max<int64_t>(spec.width - length, 0) / 2;
  return pad(pad(text, length + before, Align::right, spec.fill), spec.width, Align::left, spec.fill);
}

std::string pad_number(const std::string& sign, const std::string& digits, const Specification& spec) {
  const char align = spec.align == 0 ? '>' : spec.align;
  if (align == '=') {
    return sign + pad(digits, spec.width - static_cast<int64_t>(sign.size()), Align::right, spec.fill);
  }
  return pad_aligned(sign + digits, spec, align);
}

std::string format_number(const Value& value, const Specification& spec) {
  static constexpr std::string_view kIntegerTypes = "dxXobc";
  const bool whole =
      value.is_integer() && (spec.type == 0 || kIntegerTypes.find(spec.type) != std::string_view::npos);
  if (!whole && !value.is_integer() && spec.type != 0 &&
      kIntegerTypes.find(spec.type) != std::string_view::npos) {
    fail("Unknown format code '{}' for object of type 'float'", spec.type);
  }
  if (whole && spec.type == 'c') {
    std::string text;
    append_character(text, static_cast<char32_t>(std::clamp<int64_t>(value.integer(), 0, 0x10FFFF)));
    return pad_number("", text, spec);
  }
  const bool negative = whole ? value.integer() < 0 : std::signbit(value.number());
  std::string digits = whole ? integer_digits(value.integer(), spec) : float_digits(value.number(), spec);
  if (spec.grouping != 0) group_thousands(digits, spec.grouping);
  std::string sign;
  if (negative) {
    sign.assign(1, '-');
  } else if (spec.sign != '-') {
    sign.assign(1, spec.sign);
  }
  return pad_number(sign, digits, spec);
}

std::string format_text(std::string_view text, const Specification& spec) {
  if (spec.precision >= 0) text = text.substr(0, byte_offset(text, static_cast<size_t>(spec.precision)));
  return pad_aligned(text, spec, spec.align);
}

Specification parse_specification(std::string_view text) {
  static constexpr std::string_view kAligns = "<>^=";
  Specification spec;
  size_t at = 0;
  if (!text.empty()) {
    size_t after_fill = 0;
    next_character(text, after_fill);
    if (after_fill < text.size() && kAligns.find(text[after_fill]) != std::string_view::npos) {
      spec.fill = text.substr(0, after_fill);
      spec.align = text[after_fill];
      at = after_fill + 1;
    } else if (kAligns.find(text[0]) != std::string_view::npos) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (at < text.size() && std::string_view("+- ").find(text[at]) != std::string_view::npos)
    spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    if (spec.align == 0) {
      spec.align = '=';
      spec.fill.assign(1, '0');
    }
    ++at;
  }
  spec.width = read_number(text, at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
  if (at < text.size() && text[at] == '.') {
    const size_t digits = ++at;
    spec.precision = read_number(text, at);
    if (at == digits) fail("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("Invalid format specifier {}", repr(text));
  return spec;
}

std::string format_value(const Value& value, std::string_view specification) {
  if (specification.empty()) return to_text(value);
  const Specification spec = parse_specification(specification);
  if (value.is_string() || value.is_undefined()) {
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=') {
      fail("Invalid format specifier {} for a string", repr(specification));
    }
    return format_text(to_text(value), spec);
  }
  if (!value.is_number()) fail("unsupported format string passed to {}.__format__", type_name(value));
  if (value.is_bool() && spec.type == 0) {
    return format_text(to_text(value), spec);
  }
  static constexpr std::string_view kTypes = "dxXobceEfFgGn%";
  if (spec.type != 0 && kTypes.find(spec.type) == std::string_view::npos) {
    fail("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value));
  }
  return format_number(value, spec);
}

// "{name.attribute[key]!conversion:specification}" with the values of a call.
class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  std::string format(std::string_view text, int depth) {
    if (depth > kMaxFieldDepth) fail("Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char character = text[at];
      if ((character == '{' || character == '}') && at + 1 < text.size() && text[at + 1] == character) {
        out += character;
        at += 2;
      } else if (character == '{') {
        const size_t end = closing_brace(text, at);
        out += field(text.substr(at + 1, end - at - 1), depth);
        at = end + 1;
      } else if (character == '}') {
        fail("Single '}}' encountered in format string");
      } else {
        out += character;
        ++at;
      }
      check_fits(out.size());
    }
    return out;
  }

 private:
  static size_t closing_brace(std::string_view text, size_t open) {
    int nesting = 0;
    for (size_t at = open; at < text.size(); ++at) {
      if (text[at] == '{') ++nesting;
      if (text[at] == '}' && --nesting == 0) return at;
    }
    fail("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    spend_steps(1);
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    const Value value = lookup(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    char conversion = 0;
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
        fail("expected ':' after conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
    }
    const std::string specification = rest.empty() ? "" : format(rest.substr(1), depth + 1);
    if (conversion == 0) return format_value(value, specification);
    if (conversion == 's') return format_value(Value(to_text(value)), specification);
    if (conversion == 'r') return format_value(Value(repr(value)), specification);
    fail("Unknown conversion specifier '{}'", conversion);
  }

  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    for (size_t at = end; at < path.size();) {
      const bool item = path[at] == '[';
      const size_t stop = item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
      if (stop == std::string_view::npos) fail("Missing ']' in format string");
      const std::string_view key = path.substr(at + 1, stop - at - 1);
      if (key.empty()) fail("Empty attribute in format string");
      const bool number = std::all_of(key.begin(), key.end(), is_ascii_digit);
      if (item) {
        size_t offset = 0;
        value = get_item(value, number ? Value(read_number(key, offset)) : Value(key));
      } else {
        value = get_attribute(value, key);
      }
      if (value.is_undefined()) fail_undefined(value);
      at = item ? stop + 1 : stop;
    }
    return value;
  }

  Value argument(std::string_view name) {
    const bool number = std::all_of(name.begin(), name.end(), is_ascii_digit);
    if (!number) {
      const Value* value = arguments_.find(name);
      if (value == nullptr) fail("format() has no argument {}", repr(name));
      return *value;
    }
    size_t offset = 0;
    const auto index = name.empty() ? next_++ : static_cast<size_t>(read_number(name, offset));
    if (index >= arguments_.positional.size())
      fail("Replacement index {} out of range for positional args tuple", index);
    return arguments_.positional[index];
  }

  const Arguments& arguments_;
  size_t next_ = 0;
};

// "%(name)05.2f": the conversions of the % operator.
class PercentFormatter {
 public:
  PercentFormatter(std::string_view format, const Value& values) : format_(format), values_(values) {}

  std::string run() {
    std::string out;
    while (at_ < format_.size()) {
      if (format_[at_] != '%') {
        out += format_[at_++];
        continue;
      }
      ++at_;
      out += conversion();
      check_fits(out.size());
    }
    const bool all_used =
        values_.kind() == Value::Kind::tuple
            ? used_ == values_.sequence().items.size()
            : values_.is_dict() || values_.is_undefined() || values_.kind() == Value::Kind::list || used_ > 0;
    if (!all_used) fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) fail("incomplete format");
    return format_[at_];
  }

  Value next_value() {
    if (values_.kind() != Value::Kind::tuple) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return values_;
    }
    const auto& items = values_.sequence().items;
    if (used_ >= items.size()) fail("not enough arguments for format string");
    return items[used_++];
  }

  int64_t star_or_number() {
    if (peek() != '*') return read_number(format_, at_);
    ++at_;
    const Value value = next_value();
    if (!value.is_integer()) fail("* wants int");
    return value.integer();
  }

  std::string conversion() {
    spend_steps(1);
    Specification spec;
    std::optional<Value> named;
    if (peek() == '(') {
      const size_t end = format_.find(')', at_);
      if (end == std::string_view::npos) fail("incomplete format key");
      if (!values_.is_dict()) fail("format requires a mapping");
      const std::string_view key = format_.substr(at_ + 1, end - at_ - 1);
      const Value* value = values_.dict().find(key);
      if (value == nullptr) fail("the format names {}, which isn't in the mapping", repr(key));
      named = *value;
      at_ = end + 1;
    }
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) flag(spec, format_[at_]);
    spec.width = star_or_number();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(star_or_number(), 0);
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    const char type = format_[at_++];
    if (type == '%') return "%";
    return convert(named ? *named : next_value(), type, spec);
  }

  static void flag(Specification& spec, char flag) {
    switch (flag) {
      case '-':
        spec.align = '<';
        break;
      case '0':
        if (spec.align == 0) spec.align = '=';
        break;
      case '#':
        spec.alternate = true;
        break;
      default:
        if (spec.sign != '+') spec.sign = flag;
        break;
    }
  }

  static std::string convert(const Value& value, char type, Specification spec) {
    const bool zeros = spec.align == '=';
    if (type == 's' || type == 'r' || type == 'a') {
      if (spec.align != '<') spec.align = '>';
      return format_text(type == 's' ? to_text(value) : repr(value), spec);
    }
    if (type == 'c' && value.is_string() && character_count(value.string()) == 1)
      return format_text(value.string(), spec);
    if (std::string_view("diuxXoceEfFgG").find(type) == std::string_view::npos) {
      fail("unsupported format character '{}'", type);
    }
    if (!value.is_number()) fail("%{} format: a number is required, not {}", type, type_name(value));
    if (zeros) spec.fill.assign(1, '0');
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    spec.type = decimal ? 'd' : type;
    if (!decimal) return format_number(value, spec);
    if (!value.is_integer() && !(std::fabs(value.number()) < 9.2e18))
      fail("%d needs a finite number of 64 bits");
    return format_number(value.is_integer() ? value : Value(static_cast<int64_t>(value.number())), spec);
  }

  std::string_view format_;
  const Value& values_;
  size_t at_ = 0;
  size_t used_ = 0;
};

}  // namespace

std::string percent_format(std::string_view format, const Value& values) {
  return PercentFormatter(format, values).run();
}

std::string brace_format(std::string_view format, const Arguments& arguments) {
  return BraceFormatter(arguments).format(format, 1);
}

}  // namespace kv8::text::jinja
