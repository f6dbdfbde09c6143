// What a rendering may use; Template::render fails with an error when it needs more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv8::text::jinja {

struct RenderLimits {
  int64_t max_steps = 20'000'000;               // expressions, statements and items of containers
  size_t max_output_bytes = size_t{64} << 20;   // of the rendered text
  size_t max_memory_bytes = size_t{512} << 20;  // strings and containers alive at one time, context included
  int max_depth = 600;                          // nested statements, expressions and calls together
};

}  // namespace kv8::text::jinja
