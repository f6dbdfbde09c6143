#include "kv_cache/kv_format.h"

namespace kv8::kv_cache {

std::string_view to_string(KvFormat format) {
  switch (format) {
    case KvFormat::f32:
      return "f32";
    case KvFormat::bf16:
      return "bf16";
    case KvFormat::fp8:
      return "fp8";
  }
  return "?";
}

Expected<KvFormat> kv_format_from(std::string_view name) {
  if (name == "f32") return KvFormat::f32;
  if (name == "bf16") return KvFormat::bf16;
  if (name == "fp8" || name == "fp8_e4m3") return KvFormat::fp8;
  return make_error(ErrorCode::invalid_argument, "KV cache dtype '{}': expected fp8, bf16 or f32", name);
}

}  // namespace kv8::kv_cache
