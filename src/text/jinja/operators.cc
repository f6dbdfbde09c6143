#include "text/jinja/operators.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/failure.h"
#include "text/jinja/methods.h"
#include "text/jinja/python_text.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

using Kind = Value::Kind;

constexpr std::array<std::string_view, 7> kBinarySymbols = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr std::array<std::string_view, 8> kComparisonSymbols = {
    "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

[[noreturn]] void fail_overflow() {
  fail("the result doesn't fit a 64-bit integer");
}

int64_t floor_divide(int64_t left, int64_t right) {
  if (right == -1) {
    int64_t result = 0;
    if (__builtin_sub_overflow(int64_t{0}, left, &result)) fail_overflow();
    return result;
  }
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

int64_t modulo(int64_t left, int64_t right) {
  if (right == -1) return 0;
  const int64_t rest = left % right;
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      fail_overflow();  // base is at least 2^32 here and is multiplied once more
    }
  }
  return result;
}

Value integer_result(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::add:
      if (__builtin_add_overflow(left, right, &result)) fail_overflow();
      return Value(result);
    case BinaryOperator::subtract:
      if (__builtin_sub_overflow(left, right, &result)) fail_overflow();
      return Value(result);
    case BinaryOperator::multiply:
      if (__builtin_mul_overflow(left, right, &result)) fail_overflow();
      return Value(result);
    case BinaryOperator::divide:
      if (right == 0) fail("division by zero");
      return Value(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOperator::floor_divide:
    case BinaryOperator::modulo:
      if (right == 0) fail("integer division or modulo by zero");
      return Value(op == BinaryOperator::modulo ? modulo(left, right) : floor_divide(left, right));
    case BinaryOperator::power:
      if (right >= 0) return Value(integer_power(left, right));
      if (left == 0) fail("0.0 cannot be raised to a negative power");
      return Value(std::pow(static_cast<double>(left), static_cast<double>(right)));
  }
  return {};
}

// Python's float // and %: the remainder has the divisor's sign, the quotient is a whole number.
Value float_division(BinaryOperator op, double left, double right) {
  if (right == 0) fail("float division by zero");
  if (op == BinaryOperator::divide) return Value(left / right);
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest != 0) {
    if ((right < 0) != (rest < 0)) {
      rest += right;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, right);
  }
  if (op == BinaryOperator::modulo) return Value(rest);
  if (quotient == 0) return Value(std::copysign(0.0, left / right));
  const double whole = std::floor(quotient);
  return Value(quotient - whole > 0.5 ? whole + 1 : whole);
}

Value float_power(double left, double right) {
  if (left == 0 && right < 0) fail("0.0 cannot be raised to a negative power");
  if (left < 0 && std::isfinite(left) && std::isfinite(right) && right != std::floor(right))
    refuse("complex numbers aren't supported");
  const double result = std::pow(left, right);
  if (std::isinf(result) && std::isfinite(left) && std::isfinite(right)) fail("the result is too large");
  return Value(result);
}

Value float_result(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::add:
      return Value(left + right);
    case BinaryOperator::subtract:
      return Value(left - right);
    case BinaryOperator::multiply:
      return Value(left * right);
    case BinaryOperator::power:
      return float_power(left, right);
    default:
      return float_division(op, left, right);
  }
}

std::optional<Value> concatenate(const Value& left, const Value& right) {
  if (left.kind() != right.kind()) return std::nullopt;
  if (left.is_string()) {
    check_fits(left.string_bytes() + right.string_bytes());
    return Value(left.string() + right.string());
  }
  if (left.kind() != Kind::list && left.kind() != Kind::tuple) return std::nullopt;
  const auto& tail = right.sequence().items;
  checked_size(left.sequence().items.size() + tail.size(), sizeof(Value));
  std::vector<Value> items = left.sequence().items;
  items.insert(items.end(), tail.begin(), tail.end());
  return left.kind() == Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

std::optional<Value> repeat(const Value& sequence, const Value& count) {
  if (!count.is_integer()) return std::nullopt;
  const auto times = static_cast<size_t>(std::max<int64_t>(count.integer(), 0));
  if (sequence.is_string()) {
    const std::string& unit = sequence.string();
    std::string text;
    if (unit.empty()) return Value(std::move(text));
    text.reserve(checked_size(unit.size(), times));
    for (size_t i = 0; i < times; ++i) text += unit;
    return Value(std::move(text));
  }
  if (sequence.kind() != Kind::list && sequence.kind() != Kind::tuple) return std::nullopt;
  const auto& unit = sequence.sequence().items;
  std::vector<Value> items;
  if (!unit.empty()) {
    checked_size(unit.size() * sizeof(Value), times);
    for (size_t i = 0; i < times; ++i) items.insert(items.end(), unit.begin(), unit.end());
  }
  return sequence.kind() == Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

// -1, 0 or 1; nullopt if the two have no order (different types, or NaN: then unordered is set).
std::optional<int> order(const Value& left, const Value& right, bool& unordered) {
  spend_steps(1);
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) {
      return left.integer() < right.integer() ? -1 : int{left.integer() > right.integer()};
    }
    unordered = std::isnan(left.number()) || std::isnan(right.number());
    return left.number() < right.number() ? -1 : int{left.number() > right.number()};
  }
  if (left.kind() != right.kind()) return std::nullopt;
  if (left.is_string()) {  // the order of UTF-8 is that of its characters
    const int result = left.string().compare(right.string());
    return result < 0 ? -1 : int{result > 0};
  }
  if (left.kind() != Kind::list && left.kind() != Kind::tuple) return std::nullopt;
  const auto& a = left.sequence().items;
  const auto& b = right.sequence().items;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!equal(a[i], b[i])) return order(a[i], b[i], unordered);
  }
  return a.size() < b.size() ? -1 : int{a.size() > b.size()};
}

bool contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is_string()) {
        if (item.is_undefined()) fail_undefined(item);
        fail("'in <string>' requires string as left operand, not {}", type_name(item));
      }
      return find(container.string(), item.string()) != std::string::npos;
    case Kind::dict:
      return container.dict().find(item) != nullptr;
    default: {
      if (container.kind() != Kind::undefined && container.kind() != Kind::generator &&
          !length_of(container)) {
        fail("argument of type '{}' is not iterable", type_name(container));
      }
      Iterator iterator(container);
      while (const auto candidate = iterator.next()) {
        if (candidate->is_same(item) || equal(*candidate, item)) return true;
      }
      return false;
    }
  }
}

std::string described_type(const Value& value) {
  return value.is_none() ? "None" : type_name(value) + " object";
}

Value missing_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{}' has no attribute {}", described_type(object), repr(name)));
}

std::optional<Value> python_attribute(const Value& object, std::string_view name) {
  if (name.starts_with("__")) {
    return Value::undefined(
        fmt::format("access to attribute {} of '{}' object is unsafe.", repr(name), type_name(object)));
  }
  if (object.kind() == Kind::object) return object.object().attribute(name);
  if (object.kind() == Kind::tuple && object.tuple()->is_group) {
    if (name == "grouper") return object.tuple()->items[0];
    if (name == "list") return object.tuple()->items[1];
  }
  return find_method(object, name);
}

std::optional<Value> python_item(const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (key.kind() == Kind::list || key.is_dict()) return std::nullopt;  // can't be a key
    const Value* value = object.dict().find(key);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }
  if (!key.is_integer()) return std::nullopt;
  const bool indexable = object.is_string() || object.kind() == Kind::list || object.kind() == Kind::tuple ||
                         object.kind() == Kind::range;
  if (!indexable) return std::nullopt;
  const int64_t length = *length_of(object);
  const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  if (object.is_string()) {
    const std::string& text = object.string();
    size_t end = byte_offset(text, static_cast<size_t>(index));
    const size_t start = end;
    next_character(text, end);
    return Value(text.substr(start, end - start));
  }
  if (object.kind() == Kind::range) return Value(object.range().start + index * object.range().step);
  return object.sequence().items[static_cast<size_t>(index)];
}

int64_t slice_bound(const Value& bound, int64_t fallback, int64_t length, int64_t low, int64_t high) {
  if (bound.is_none()) return fallback;
  if (bound.is_undefined()) fail_undefined(bound);
  if (!bound.is_integer()) fail("slice indices must be integers or None, not {}", type_name(bound));
  const int64_t index = bound.integer();
  return std::clamp(index < 0 ? index + length : index, low, high);
}

}  // namespace

Value apply(BinaryOperator op, const Value& left, const Value& right) {
  if (op == BinaryOperator::modulo && left.is_string()) return Value(percent_format(left.string(), right));
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (left.is_integer() && right.is_integer()) return integer_result(op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return float_result(op, left.number(), right.number());
  std::optional<Value> result;
  if (op == BinaryOperator::add) result = concatenate(left, right);
  if (op == BinaryOperator::multiply) {
    result = repeat(left, right);
    if (!result) result = repeat(right, left);
  }
  if (!result) {
    fail("unsupported operand type(s) for {}: '{}' and '{}'", kBinarySymbols[static_cast<size_t>(op)],
         type_name(left), type_name(right));
  }
  return std::move(*result);
}

Value apply(UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::logical_not) return Value(!truth(operand));
  if (operand.is_undefined()) fail_undefined(operand);
  if (!operand.is_number())
    fail("bad operand type for unary {}: '{}'", op == UnaryOperator::negate ? '-' : '+', type_name(operand));
  if (operand.is_integer()) {
    return op == UnaryOperator::plus ? Value(operand.integer())
                                     : integer_result(BinaryOperator::subtract, 0, operand.integer());
  }
  return Value(op == UnaryOperator::plus ? operand.number() : -operand.number());
}

bool compare(Comparison op, const Value& left, const Value& right) {
  switch (op) {
    case Comparison::equal:
      return equal(left, right);
    case Comparison::not_equal:
      return !equal(left, right);
    case Comparison::in:
      return contains(right, left);
    case Comparison::not_in:
      return !contains(right, left);
    default:
      break;
  }
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  bool unordered = false;
  const auto result = order(left, right, unordered);
  if (!result) {
    fail("'{}' not supported between instances of '{}' and '{}'", kComparisonSymbols[static_cast<size_t>(op)],
         type_name(left), type_name(right));
  }
  if (unordered) return false;
  switch (op) {
    case Comparison::less:
      return *result < 0;
    case Comparison::less_equal:
      return *result <= 0;
    case Comparison::greater:
      return *result > 0;
    default:
      return *result >= 0;
  }
}

bool less(const Value& left, const Value& right) {
  return compare(Comparison::less, left, right);
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  const bool sliceable = object.is_string() || object.kind() == Kind::list || object.kind() == Kind::tuple ||
                         object.kind() == Kind::range;
  if (!sliceable) fail("'{}' object can't be sliced", type_name(object));
  const int64_t length = *length_of(object);
  const int64_t stride =
      slice_bound(step, 1, 0, std::numeric_limits<int64_t>::min() + 1, std::numeric_limits<int64_t>::max());
  if (stride == 0) fail("slice step cannot be zero");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? length : length - 1;
  Range indices{slice_bound(start, stride > 0 ? 0 : length - 1, length, low, high),
                slice_bound(stop, stride > 0 ? length : -1, length, low, high), stride};
  if (object.kind() == Kind::range) {
    const Range& range = object.range();
    int64_t wide_step = 0;
    if (__builtin_mul_overflow(range.step, stride, &wide_step)) fail_overflow();
    return Value(
        Range{range.start + indices.start * range.step, range.start + indices.stop * range.step, wide_step});
  }
  if (object.is_string() && stride == 1) {
    if (indices.size() == 0) return Value("");
    const std::string& text = object.string();
    const size_t begin = byte_offset(text, static_cast<size_t>(indices.start));
    const std::string_view rest = std::string_view(text).substr(begin);
    return Value(rest.substr(0, byte_offset(rest, static_cast<size_t>(indices.size()))));
  }
  const int64_t count = indices.size();
  if (object.is_string()) {
    const std::u32string characters = decode(object.string());
    std::string text;
    for (int64_t i = 0; i < count; ++i) {
      append_character(text, characters[static_cast<size_t>(indices.start + i * stride)]);
    }
    return Value(std::move(text));
  }
  const auto& source = object.sequence().items;
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i)
    items.push_back(source[static_cast<size_t>(indices.start + i * stride)]);
  return object.kind() == Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail_undefined(object);
  if (auto value = python_item(object, key)) return std::move(*value);
  if (!key.is_string()) {
    return Value::undefined(fmt::format("{} has no element {}", described_type(object), repr(key)));
  }
  const std::string& name = key.string();
  if (auto value = python_attribute(object, name)) return std::move(*value);
  return missing_attribute(object, name);
}

Value get_attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (auto value = python_attribute(object, name)) return std::move(*value);
  if (object.is_dict()) {
    if (const Value* value = object.dict().find(name)) return *value;
  }
  return missing_attribute(object, name);
}

Value get_attribute_only(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (auto value = python_attribute(object, name)) return std::move(*value);
  return missing_attribute(object, name);
}

}  // namespace kv8::text::jinja
