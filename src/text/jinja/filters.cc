#include "text/jinja/filters.h"

#include <algorithm>
#include <unordered_map>

#include "text/jinja/failure.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

std::unordered_map<std::string_view, const Native*> all_filters() {
  std::unordered_map<std::string_view, const Native*> filters;
  for (const auto table : {text_filters(), sequence_filters(), value_filters()}) {
    for (const Native& filter : table) filters.emplace(filter.name, &filter);
  }
  return filters;
}

std::vector<Value> attribute_parts(const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_string()) return {attribute};
  std::vector<Value> parts;
  for (const std::string& part : split(attribute.string(), ".", -1)) {
    const bool number =
        !part.empty() && part.size() < 10 && std::all_of(part.begin(), part.end(), is_ascii_digit);
    parts.push_back(number ? Value(int64_t{std::stoi(part)}) : Value(part));
  }
  return parts;
}

}  // namespace

const Native* find_filter(std::string_view name) {
  static const auto filters = all_filters();
  const auto it = filters.find(name);
  return it == filters.end() ? nullptr : it->second;
}

std::function<Value(const Value&)> attribute_getter(const Value& attribute, const Value& fallback) {
  return [parts = attribute_parts(attribute), fallback](const Value& item) {
    Value value = item;
    for (const Value& part : parts) {
      value = get_item(value, part);
      if (value.is_undefined() && !fallback.is_none()) value = fallback;
    }
    return value;
  };
}

}  // namespace kv8::text::jinja
