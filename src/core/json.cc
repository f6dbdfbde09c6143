#include "core/json.h"

#include <cmath>

namespace kv8 {

namespace {

// The parser itself is not recursive, but destructors and consumers of deep values are.
Status check_depth(std::string_view text, std::string_view source) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return make_error(ErrorCode::corrupt_data, "{}: JSON nested deeper than {} levels at byte {}", source,
                          kMaxJsonDepth, i);
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return {};
}

template <class T>
Expected<T> parse(std::string_view text, std::string_view source) {
  KV8_RETURN_IF_ERROR(check_depth(text, source));
  try {
    return T::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    return make_error(ErrorCode::corrupt_data, "{}: not valid JSON: {}", source, error.what());
  }
}

}  // namespace

Expected<Json> parse_json(std::string_view text, std::string_view source) {
  return parse<Json>(text, source);
}

Expected<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source) {
  return parse<OrderedJson>(text, source);
}

Expected<JsonObject> JsonObject::from(const Json& value, std::string source, std::string path) {
  if (!value.is_object()) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: expected an object, found {}", source,
                      path.empty() ? "top level" : path, value.type_name());
  }
  return JsonObject(value, std::move(source), std::move(path));
}

const Json* JsonObject::find(std::string_view key) const {
  const auto it = value_->find(key);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

std::string JsonObject::field(std::string_view key) const {
  return path_.empty() ? fmt::format("{}: {}", source_, key) : fmt::format("{}: {}.{}", source_, path_, key);
}

namespace {

tl::unexpected<Error> wrong_type(const std::string& field, std::string_view expected, const Json& found) {
  std::string text = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return make_error(ErrorCode::corrupt_data, "{}: expected {}, found {}", field, expected, text);
}

tl::unexpected<Error> missing(const std::string& field) {
  return make_error(ErrorCode::not_found, "{}: missing", field);
}

Expected<int64_t> as_integer(const Json& value, const std::string& field, int64_t low, int64_t high) {
  // Writers turn whole numbers into 1e6 or 64.0 now and then; those are integers too.
  if (value.is_number_unsigned()) {
    const auto exact = value.get<uint64_t>();
    if (high < 0 || exact > static_cast<uint64_t>(high) || static_cast<int64_t>(exact) < low) {
      return make_error(ErrorCode::corrupt_data, "{}: {} is outside of {} to {}", field, exact, low, high);
    }
    return static_cast<int64_t>(exact);
  }
  if (value.is_number_integer()) {
    const auto exact = value.get<int64_t>();
    if (exact < low || exact > high) {
      return make_error(ErrorCode::corrupt_data, "{}: {} is outside of {} to {}", field, exact, low, high);
    }
    return exact;
  }
  if (!value.is_number_float()) return wrong_type(field, "an integer", value);
  const double number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > 9e15) return wrong_type(field, "an integer", value);
  if (number < static_cast<double>(low) || number > static_cast<double>(high)) {
    return make_error(ErrorCode::corrupt_data, "{}: {} is outside of {} to {}", field, number, low, high);
  }
  return static_cast<int64_t>(number);
}

}  // namespace

Expected<int64_t> JsonObject::integer(std::string_view key, int64_t low, int64_t high) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(field(key));
  return as_integer(*value, field(key), low, high);
}

Expected<double> JsonObject::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(field(key));
  if (!value->is_number()) return wrong_type(field(key), "a number", *value);
  const double number = value->get<double>();
  if (!std::isfinite(number)) return wrong_type(field(key), "a finite number", *value);
  return number;
}

Expected<std::string> JsonObject::string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(field(key));
  if (!value->is_string()) return wrong_type(field(key), "a string", *value);
  return value->get<std::string>();
}

Expected<JsonObject> JsonObject::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return missing(field(key));
  return from(*value, source_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

Expected<int64_t> JsonObject::integer_or(std::string_view key, int64_t fallback, int64_t low,
                                         int64_t high) const {
  return has(key) ? integer(key, low, high) : Expected<int64_t>(fallback);
}

Expected<double> JsonObject::number_or(std::string_view key, double fallback) const {
  return has(key) ? number(key) : Expected<double>(fallback);
}

Expected<bool> JsonObject::boolean_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong_type(field(key), "true or false", *value);
  return value->get<bool>();
}

Expected<std::string> JsonObject::string_or(std::string_view key, std::string fallback) const {
  return has(key) ? string(key) : Expected<std::string>(std::move(fallback));
}

Expected<std::vector<std::string>> JsonObject::strings_or_empty(std::string_view key) const {
  std::vector<std::string> strings;
  const Json* value = find(key);
  if (value == nullptr) return strings;
  if (!value->is_array()) return wrong_type(field(key), "a list of strings", *value);
  for (const Json& item : *value) {
    if (!item.is_string()) return wrong_type(field(key), "a list of strings", *value);
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

Expected<std::vector<int64_t>> JsonObject::integers_or_empty(std::string_view key, int64_t low,
                                                             int64_t high) const {
  std::vector<int64_t> integers;
  const Json* value = find(key);
  if (value == nullptr) return integers;
  if (!value->is_array()) {
    KV8_ASSIGN_OR_RETURN(integers.emplace_back(), as_integer(*value, field(key), low, high));
    return integers;
  }
  for (const Json& item : *value) {
    KV8_ASSIGN_OR_RETURN(integers.emplace_back(), as_integer(item, field(key), low, high));
  }
  return integers;
}

}  // namespace kv8
