// Values as Python writes them: str(), repr() and json.dumps().
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace kv8::text::jinja {

std::string float_repr(double value);  // the shortest text that reads back as value
std::string repr(const Value& value);
std::string repr(std::string_view text);
std::string to_text(const Value& value);  // str(): strings as they are, Undefined as nothing

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // nullopt: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace kv8::text::jinja
