// A check for options that are whole numbers. CLI11 alone would clamp what 64 bits don't hold, without a
// word.
#pragma once

#include <cstdint>
#include <limits>

#include <CLI/CLI.hpp>

namespace kv8::cli {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Decimal digits with or without a minus sign, from low to high; anything else is refused by name.
CLI::Validator whole_number(int64_t low, int64_t high = kNoLimit);

}  // namespace kv8::cli
