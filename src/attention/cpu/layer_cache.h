// One layer's pages as the CPU backend lays them out, with one writer and one reader for all formats.
//
// K and V pages: [page][kv_head][kPageTokens][head_dim], token-major in both, because the CPU's SIMD runs
// along head_dim. (The CUDA backend keeps its own layout inside a page; above the backends nothing sees
// bytes.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "kv_cache/kv_format.h"

namespace kv8::attention::cpu {

using kv_cache::kPageTokens;
using kv_cache::KvFormat;

struct LayerCacheView {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  KvFormat format = KvFormat::bf16;
  int kv_heads = 0;
  int head_dim = 0;
  const float* k_scale = nullptr;  // [kv_heads], 1.0 unless format is fp8
  const float* v_scale = nullptr;  // [kv_heads]

  // Bytes of one token of one head, of one head of a page, and of a page (of K, or of V).
  int64_t token_bytes() const { return head_dim * static_cast<int64_t>(element_bytes(format)); }
  int64_t head_bytes() const { return kPageTokens * token_bytes(); }
  int64_t page_bytes() const { return kv_heads * head_bytes(); }

  int64_t offset(int32_t page, int head, int slot) const {
    return page * page_bytes() + head * head_bytes() + slot * token_bytes();
  }
  const std::byte* key(int32_t page, int head, int slot) const { return k + offset(page, head, slot); }
  const std::byte* value(int32_t page, int head, int slot) const { return v + offset(page, head, slot); }
};

// Stores one token: keys and values [kv_heads, head_dim] in float32 (keys after RoPE) go into slot `slot` of
// `page`. Returns how many numbers were outside of the format's range and were saturated (0 unless fp8).
int64_t write_token(const LayerCacheView& cache, int32_t page, int slot, const float* keys,
                    const float* values);

// Widens `count` consecutive tokens of one head, from `slot`, to float32 [count, head_dim], scale applied.
void read_keys(const LayerCacheView& cache, int32_t page, int head, int slot, int count, float* out);
void read_values(const LayerCacheView& cache, int32_t page, int head, int slot, int count, float* out);

}  // namespace kv8::attention::cpu
