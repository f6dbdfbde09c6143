#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/failure.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;

constexpr double kTwoTo63 = 9223372036854775808.0;

// A number's text without whitespace around and with single '_' between digits taken out; nullopt if
// malformed.
std::optional<std::string> plain_number(std::string_view text) {
  std::string plain;
  const std::string_view stripped = strip(text);
  for (size_t i = 0; i < stripped.size(); ++i) {
    const auto alnum = [&](size_t at) {
      return at < stripped.size() && std::isalnum(static_cast<unsigned char>(stripped[at])) != 0;
    };
    if (stripped[i] != '_') {
      plain += stripped[i];
    } else if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) {
      return std::nullopt;
    }
  }
  if (plain.empty()) return std::nullopt;
  return plain;
}

// Python's int(text, base); nullopt for a ValueError.
std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
  auto plain = plain_number(text);
  if (!plain || base < 0 || base == 1 || base > 36) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (negative || digits[0] == '+') digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char prefix = static_cast<char>(digits[1] | 0x20);
    const int64_t implied = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
    if (implied != 0 && (base == implied || base == 0)) {
      base = implied;
      digits.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  uint64_t size = 0;
  const auto result =
      std::from_chars(digits.data(), digits.data() + digits.size(), size, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size() || digits.empty()) return std::nullopt;
  if (result.ec != std::errc{} || size >= uint64_t{1} << 63)
    fail("the integer {} has more than 64 bits", text);
  return negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size);
}

// Python's float(text); nullopt for a ValueError.
std::optional<double> parse_float(std::string_view text) {
  const auto plain = plain_number(text);
  if (!plain || plain->find_first_of("xXpP(") != std::string::npos)
    return std::nullopt;  // strtod knows more than Python
  char* end = nullptr;
  const double value = std::strtod(plain->c_str(), &end);
  if (end != plain->c_str() + plain->size()) return std::nullopt;
  return value;
}

std::optional<int64_t> truncate_float(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (std::fabs(value) >= kTwoTo63) fail("the number {} has more than 64 bits", float_repr(value));
  return static_cast<int64_t>(value);
}

Value to_int(Interpreter&, const Value& self, Call arguments) {
  if (self.is_undefined()) fail_undefined(self);
  std::optional<int64_t> result;
  if (self.is_integer()) {
    result = self.integer();
  } else if (self.is_number()) {
    result = truncate_float(self.number());
  } else if (self.is_string()) {
    result = parse_int(self.string(), arguments.integer(1, 10));
    const auto number = result ? std::nullopt : parse_float(self.string());
    if (number) result = truncate_float(*number);
  }
  return result ? Value(*result) : arguments.value_or(0, Value(int64_t{0}));
}

Value to_float(Interpreter&, const Value& self, Call arguments) {
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_number()) return Value(self.number());
  const auto result = self.is_string() ? parse_float(self.string()) : std::nullopt;
  return result ? Value(*result) : arguments.value_or(0, Value(0.0));
}

Value absolute(Interpreter&, const Value& self, Call) {
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is_number()) fail("bad operand type for abs(): '{}'", type_name(self));
  if (!self.is_integer()) return Value(std::fabs(self.number()));
  return self.integer() < 0 ? apply(UnaryOperator::negate, self) : Value(self.integer());
}

// Python's round(value, digits): to the nearest even of the decimal the number stands for.
double round_half_even(double value, int64_t digits) {
  if (!std::isfinite(value)) return value;
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::isinf(unit) ? 0.0 : std::nearbyint(value / unit) * unit;
  }
  constexpr int64_t kAllDigits = 330;  // no double has more after the point that could matter
  if (digits > kAllDigits) return value;
  char buffer[768];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Value round_filter(Interpreter&, const Value& self, Call arguments) {
  const int64_t digits = arguments.integer(0, 0);
  const std::string method = arguments.text(1, "common");
  if (self.is_undefined()) fail_undefined(self);
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (!self.is_number()) fail("type {} doesn't define __round__ method", type_name(self));
  if (method == "common") {
    if (!self.is_integer()) return Value(round_half_even(self.number(), digits));
    if (digits >= 0) return Value(self.integer());
    return Value(static_cast<int64_t>(round_half_even(self.number(), digits)));
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.number() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value to_json_filter(Interpreter&, const Value& self, Call arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.flag(0, false);
  style.sort_keys = arguments.flag(3, false);
  if (arguments.has(1) && !arguments[1].is_none()) {
    style.indent =
        arguments[1].is_string() ? arguments[1].string() : pad("", arguments.integer(1), Align::left);
    style.item_separator.assign(1, ',');
  }
  if (arguments.has(2) && !arguments[2].is_none()) {
    const auto separators = to_vector(arguments[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      fail("tojson: separators must be two strings");
    }
    style.item_separator = separators[0].string();
    style.key_separator = separators[1].string();
  }
  return Value(to_json(self, style));
}

Value default_filter(Interpreter&, const Value& self, Call arguments) {
  const bool missing = self.is_undefined() || (arguments.flag(1, false) && !truth(self));
  return missing ? arguments.value_or(0, Value("")) : self;
}

constexpr Native kValueFilters[] = {
    {"abs", "", absolute},
    {"attr", "name",
     [](Interpreter&, const Value& self, Call arguments) {
       return get_attribute_only(self, to_text(arguments[0]));
     }},
    {"d", "default_value? boolean?", default_filter},
    {"default", "default_value? boolean?", default_filter},
    {"float", "default?", to_float},
    {"int", "default? base?", to_int},
    {"round", "precision? method?", round_filter},
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", to_json_filter},
};

}  // namespace

std::span<const Native> value_filters() {
  return kValueFilters;
}

}  // namespace kv8::text::jinja
