// The methods of strings, lists, tuples and dicts: those that leave their object as it is. The others
// (append, update, ...) are found, but are undefined, as in Jinja2's immutable sandbox.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "text/jinja/arguments.h"

namespace kv8::text::jinja {

std::optional<Value> find_method(const Value& object, std::string_view name);
std::span<const Native> methods_of(Value::Kind kind);  // empty for a kind without any
std::span<const Native> string_methods();

}  // namespace kv8::text::jinja
