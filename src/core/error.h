// Errors that a user can cause are values. A message names the file, the field and what was expected.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>
#include <tl/expected.hpp>

namespace kv8 {

enum class ErrorCode {
  invalid_argument,  // the caller or the command line asked for something that makes no sense
  not_found,         // a file, tensor, model or field that isn't there
  corrupt_data,      // a file that contradicts itself or its format
  unsupported,       // well-formed, but outside of what kv8 does; the message says what would work
  out_of_memory,
  io,
  cancelled,
};

struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

template <class T>
using Expected = tl::expected<T, Error>;
using Status = Expected<void>;

template <class... Args>
tl::unexpected<Error> make_error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::make_unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace kv8

#define KV8_CONCAT_INNER(a, b) a##b
#define KV8_CONCAT(a, b) KV8_CONCAT_INNER(a, b)

// Leaves the enclosing function with the error of `expression`, if it has one.
#define KV8_RETURN_IF_ERROR(expression)                            \
  do {                                                             \
    if (auto kv8_status = (expression); !kv8_status)               \
      return ::tl::make_unexpected(std::move(kv8_status).error()); \
  } while (false)

// KV8_ASSIGN_OR_RETURN(auto file, MappedFile::open(path)): declares or assigns on success, else returns the
// error.
#define KV8_ASSIGN_OR_RETURN(target, expression) \
  KV8_ASSIGN_OR_RETURN_INNER(KV8_CONCAT(kv8_expected_, __LINE__), target, expression)
#define KV8_ASSIGN_OR_RETURN_INNER(holder, target, expression)          \
  auto holder = (expression);                                           \
  if (!holder) return ::tl::make_unexpected(std::move(holder).error()); \
  target = std::move(*holder)
