// How keys and values are stored. The format is a type everywhere; everything that depends on it asks here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace kv8::kv_cache {

enum class KvFormat : uint8_t {
  f32,  // exact; for tests
  bf16,
  fp8,  // OCP e4m3, stored = e4m3(x / scale), scale a float32 per layer or per KV head
};

// Tokens of one page. Also the tile of every attention kernel: a tile is the keys of one page, so tiles are
// aligned to absolute positions and Q, K, V and P quantise alike in decode, chunked and one-shot prefill.
constexpr int kPageTokens = 128;

constexpr size_t element_bytes(KvFormat format) {
  switch (format) {
    case KvFormat::f32:
      return 4;
    case KvFormat::bf16:
      return 2;
    case KvFormat::fp8:
      return 1;
  }
  return 0;
}

std::string_view to_string(KvFormat format);
Expected<KvFormat> kv_format_from(std::string_view name);  // "f32", "bf16", "fp8" (also "fp8_e4m3")

}  // namespace kv8::kv_cache
