// How the engine reports an error inside itself: a Failure is thrown where the error is seen, gets its place
// in the source from the innermost syntax node around it, and Template turns it into an Error. It never
// leaves this folder.
#pragma once

#include <string>
#include <utility>

#include "core/error.h"

namespace kv8::text::jinja {

struct Position {
  int line = 0;  // from 1; 0 means not yet known
  int column = 0;
};

struct Failure {
  ErrorCode code = ErrorCode::corrupt_data;  // the template is at fault
  std::string message;
  Position at;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{ErrorCode::corrupt_data, fmt::format(format, std::forward<Args>(args)...), {}};
}

template <class... Args>
[[noreturn]] void fail_at(Position at, fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{ErrorCode::corrupt_data, fmt::format(format, std::forward<Args>(args)...), at};
}

// For what the template itself refuses about its messages, in its own words.
[[noreturn]] inline void refuse_request(std::string words) {
  throw Failure{ErrorCode::invalid_argument, std::move(words), {}};
}

// For what Jinja2 has and this engine leaves out on purpose.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure{ErrorCode::unsupported, fmt::format(format, std::forward<Args>(args)...), {}};
}

}  // namespace kv8::text::jinja
