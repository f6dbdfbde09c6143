#include "cli/whole_number.h"

#include <charconv>
#include <string>

#include <fmt/format.h>

namespace kv8::cli {

CLI::Validator whole_number(int64_t low, int64_t high) {
  const std::string range =
      high == kNoLimit ? fmt::format("{} or more", low) : fmt::format("{} to {}", low, high);
  const auto check = [low, high, range](std::string& text) -> std::string {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range)
      return fmt::format("{} is too large: expected {}", text, range);
    if (error != std::errc() || end != text.data() + text.size())
      return fmt::format("'{}' is not a whole number: expected {}", text, range);
    if (value < low || value > high) return fmt::format("{}: expected {}", text, range);
    return {};
  };
  return CLI::Validator(check, range);
}

}  // namespace kv8::cli
