// KV8_CHECK(condition) and KV8_CHECK(condition, "format", values...): for bugs, never for bad input. Always
// on.
#pragma once

#include <string>

#include <fmt/format.h>

namespace kv8::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);

inline std::string check_message() {
  return {};
}
template <class... Args>
std::string check_message(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace kv8::detail

#define KV8_CHECK(condition, ...)                                             \
  do {                                                                        \
    if (!(condition)) [[unlikely]]                                            \
      ::kv8::detail::check_failed(__FILE__, __LINE__, #condition,             \
                                  ::kv8::detail::check_message(__VA_ARGS__)); \
  } while (false)
