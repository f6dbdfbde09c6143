// The operators of the template language, with Python's meaning and messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace kv8::text::jinja {

enum class BinaryOperator : uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
enum class UnaryOperator : uint8_t { negate, plus, logical_not };
enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

Value apply(BinaryOperator op, const Value& left, const Value& right);
Value apply(UnaryOperator op, const Value& operand);
bool compare(Comparison op, const Value& left, const Value& right);
bool less(const Value& left, const Value& right);  // fails for types without an order

// object[start:stop:step]; nullopt or None for what is left out.
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
// object[key], then the attribute of that name; Undefined if there is neither.
Value get_item(const Value& object, const Value& key);
// The attribute object.name, then object["name"]; Undefined if there is neither.
Value get_attribute(const Value& object, std::string_view name);
// object.name alone, as the filter attr has it.
Value get_attribute_only(const Value& object, std::string_view name);

}  // namespace kv8::text::jinja
