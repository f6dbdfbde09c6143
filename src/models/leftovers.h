// Tensors that checkpoints hold and a decoder doesn't need. Everything else that a model leaves unread is an
// error: a weight that gets lost gives wrong answers, not a warning.
#pragma once

#include <span>
#include <string_view>

namespace kv8::models {

// A leftover is known by the beginning or by the end of its name. Ends begin at a dot (or are the whole
// name).
struct Leftover {
  enum class Where : unsigned char { begin, end };
  Where where = Where::end;
  std::string_view text;
};

// Whether `name` is a leftover of any model (buffers that old versions of transformers saved, scales of
// activations that kv8 doesn't quantise, scales of the KV cache: those are bound by formats/kv_scales.h) or
// one of `family`.
bool is_leftover(std::string_view name, std::span<const Leftover> family);

}  // namespace kv8::models
