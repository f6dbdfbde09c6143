// JSON from files, read with errors that name the file and the field ("config.json: rope_parameters.factor:
// ...").
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace kv8 {

using Json = nlohmann::json;  // keys sorted; lookups are logarithmic
using OrderedJson =
    nlohmann::ordered_json;  // keys in the file's order; lookups are linear: small objects only

constexpr int kMaxJsonDepth = 256;

// Never throws. `source` names the text in messages (a path). Refuses a nesting deeper than kMaxJsonDepth.
Expected<Json> parse_json(std::string_view text, std::string_view source);
Expected<OrderedJson> parse_ordered_json(std::string_view text, std::string_view source);

// One JSON object, read field by field. A field that is absent and a field that is null are the same.
class JsonObject {
 public:
  // value must be an object and outlive this. path is where it lies in the file ("" at the top).
  static Expected<JsonObject> from(const Json& value, std::string source, std::string path = "");

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // nullptr if absent or null
  const std::string& source() const { return source_; }
  std::string field(std::string_view key) const;  // "config.json: rope_parameters.factor"

  // Required fields: not_found if absent, corrupt_data if of another type or outside [low, high].
  Expected<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  Expected<double> number(std::string_view key) const;  // finite
  Expected<std::string> string(std::string_view key) const;
  Expected<JsonObject> object(std::string_view key) const;

  // Optional fields: `fallback` if absent, corrupt_data if of another type or outside the range.
  Expected<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t low, int64_t high) const;
  Expected<double> number_or(std::string_view key, double fallback) const;
  Expected<bool> boolean_or(std::string_view key, bool fallback) const;
  Expected<std::string> string_or(std::string_view key, std::string fallback) const;
  Expected<std::vector<std::string>> strings_or_empty(std::string_view key) const;
  // An integer or a list of integers ("eos_token_id": 2 or [2, 7]); empty if absent.
  Expected<std::vector<int64_t>> integers_or_empty(std::string_view key, int64_t low, int64_t high) const;

 private:
  JsonObject(const Json& value, std::string source, std::string path)
      : value_(&value), source_(std::move(source)), path_(std::move(path)) {}

  const Json* value_;
  std::string source_;
  std::string path_;
};

}  // namespace kv8
