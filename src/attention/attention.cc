#include "attention/attention.h"

#include <array>
#include <utility>

namespace kv8::attention {

namespace {

constexpr std::array<std::pair<Accumulate, std::string_view>, 5> kNames = {{
    {Accumulate::f32, "f32"},
    {Accumulate::tile, "tile"},
    {Accumulate::two_level, "two-level"},
    {Accumulate::single, "single"},
    {Accumulate::exact, "exact"},
}};

}  // namespace

std::string_view to_string(Accumulate mode) {
  for (const auto& [value, name] : kNames) {
    if (value == mode) return name;
  }
  return "?";
}

Expected<Accumulate> accumulate_from(std::string_view text) {
  for (const auto& [value, name] : kNames) {
    if (name == text) return value;
  }
  return make_error(ErrorCode::invalid_argument,
                    "attention mode '{}': expected f32, tile, two-level, single or exact", text);
}

}  // namespace kv8::attention
