// What string methods and the filters of the same names share: searching, splitting, joining and padding, all
// by characters and with Python's corner cases.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace kv8::text::jinja {

enum class Align : uint8_t { left, right, center };

// As std::string_view's, but in time that grows with the sum of the sizes, never with their product.
size_t find(std::string_view text, std::string_view wanted, size_t from = 0);
size_t rfind(std::string_view text, std::string_view wanted);

std::string pad(std::string_view text, int64_t width, Align align, std::string_view fill = " ");
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        int64_t count = -1);
// separator nullopt: runs of whitespace, none at the ends. limit < 0: no limit.
std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               int64_t limit);
std::vector<std::string> split_right(std::string_view text, const std::optional<std::string>& separator,
                                     int64_t limit);
std::string join(std::string_view separator, const std::vector<std::string>& parts);
Value to_list(std::vector<std::string> parts);

}  // namespace kv8::text::jinja
