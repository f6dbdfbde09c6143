// Any text as a config: parsed both ways, and every field read as every type.
#include <string_view>

#include "core/json.h"
#include "fuzz.h"

namespace {

void read_fields(const kv8::JsonObject& object, const kv8::Json& value, int depth) {
  for (const auto& [key, item] : value.items()) {
    const bool absent = !object.has(key);
    kv8::fuzz::require(absent == item.is_null());
    const auto integer = object.integer(key, -1000, 1000);
    kv8::fuzz::require(!integer || (*integer >= -1000 && *integer <= 1000));
    kv8::fuzz::require(object.string_or(key, "").has_value() == (absent || item.is_string()));
    kv8::fuzz::require(object.boolean_or(key, true).has_value() == (absent || item.is_boolean()));
    static_cast<void>(object.number(key));
    static_cast<void>(object.strings_or_empty(key));
    static_cast<void>(object.integers_or_empty(key, 0, 1 << 30));
    const auto nested = object.object(key);
    kv8::fuzz::require(nested.has_value() == item.is_object());
    if (nested && depth < 8) read_fields(*nested, item, depth + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = kv8::parse_json(text, "fuzz");
  kv8::fuzz::require(parsed.has_value() == kv8::parse_ordered_json(text, "fuzz").has_value());
  if (!parsed) return 0;
  const auto object = kv8::JsonObject::from(*parsed, "fuzz");
  if (object) read_fields(*object, *parsed, 0);
  return 0;
}
