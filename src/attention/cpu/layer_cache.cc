#include "attention/cpu/layer_cache.h"

#include <cstring>

#include "core/check.h"
#include "numerics/e4m3.h"
#include "numerics/half.h"

namespace kv8::attention::cpu {

namespace {

int64_t store(KvFormat format, const float* x, int count, float scale, std::byte* out) {
  switch (format) {
    case KvFormat::f32:
      std::memcpy(out, x, static_cast<size_t>(count) * sizeof(float));
      return 0;
    case KvFormat::bf16: {
      auto* to = reinterpret_cast<uint16_t*>(out);
      for (int i = 0; i < count; ++i) to[i] = numerics::float_to_bf16(x[i]);
      return 0;
    }
    case KvFormat::fp8:
      return numerics::quantize_e4m3(x, static_cast<size_t>(count), 1.0F / scale,
                                     reinterpret_cast<uint8_t*>(out));
  }
  KV8_CHECK(false, "KV format {}", static_cast<int>(format));
}

void load(KvFormat format, const std::byte* in, int count, float scale, float* out) {
  switch (format) {
    case KvFormat::f32:
      std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
      return;
    case KvFormat::bf16: {
      const auto* from = reinterpret_cast<const uint16_t*>(in);
      for (int i = 0; i < count; ++i) out[i] = numerics::bf16_to_float(from[i]);
      return;
    }
    case KvFormat::fp8:
      numerics::dequantize_e4m3(reinterpret_cast<const uint8_t*>(in), static_cast<size_t>(count), scale, out);
      return;
  }
}

}  // namespace

int64_t write_token(const LayerCacheView& cache, int32_t page, int slot, const float* keys,
                    const float* values) {
  int64_t saturated = 0;
  for (int head = 0; head < cache.kv_heads; ++head) {
    const int64_t offset = cache.offset(page, head, slot);
    const float* key = keys + static_cast<int64_t>(head) * cache.head_dim;
    const float* value = values + static_cast<int64_t>(head) * cache.head_dim;
    saturated += store(cache.format, key, cache.head_dim, cache.k_scale[head], cache.k + offset);
    saturated += store(cache.format, value, cache.head_dim, cache.v_scale[head], cache.v + offset);
  }
  return saturated;
}

// Tokens of a head lie one after the other, so a run of them is one stretch of numbers.
void read_keys(const LayerCacheView& cache, int32_t page, int head, int slot, int count, float* out) {
  load(cache.format, cache.key(page, head, slot), count * cache.head_dim, cache.k_scale[head], out);
}

void read_values(const LayerCacheView& cache, int32_t page, int head, int slot, int count, float* out) {
  load(cache.format, cache.value(page, head, slot), count * cache.head_dim, cache.v_scale[head], out);
}

}  // namespace kv8::attention::cpu
