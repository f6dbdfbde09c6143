#include "core/readable.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

namespace kv8 {

std::string with_thousands(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const size_t sign = number < 0 ? 1 : 0;
  for (size_t position = digits.size(); position > sign + 3;) {
    position -= 3;
    digits.insert(position, ",");
  }
  return digits;
}

std::string human_bytes(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace kv8
