// Python's string escapes, as in a template's "...\n".
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kv8::text::jinja {

std::optional<std::string> unescape(std::string_view literal);  // without its quotes; nullopt if malformed

}  // namespace kv8::text::jinja
