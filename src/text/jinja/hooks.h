// What a rendering asks of the world outside.
#pragma once

#include <ctime>
#include <functional>

namespace kv8::text::jinja {

struct RenderHooks {
  std::function<std::tm()> clock;  // the local time for strftime_now; the system's if empty
};

}  // namespace kv8::text::jinja
