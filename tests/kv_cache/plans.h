// Cache layers and plans for the tests of kv_cache.
#pragma once

#include <utility>
#include <vector>

#include "kv_cache/cache_plan.h"

namespace kv8::kv_cache {

inline CacheLayer kv_layer(KvFormat format, int64_t window = 0, int kv_heads = 8, int head_dim = 128) {
  CacheLayer layer;
  layer.format = format;
  layer.kv_heads = kv_heads;
  layer.k_dim = layer.v_dim = head_dim;
  layer.window = window;
  return layer;
}

// DeepSeek-V3's: 512 latent dims, which are V too, and 64 rotary ones.
inline CacheLayer latent_layer(KvFormat format) {
  CacheLayer layer;
  layer.kind = CacheKind::latent;
  layer.format = format;
  layer.kv_heads = 1;
  layer.k_dim = 576;
  layer.v_dim = 512;
  return layer;
}

inline CacheLayer state_layer(int64_t slot_bytes, int slots = 1) {
  CacheLayer layer;
  layer.kind = CacheKind::state;
  layer.slot_bytes = slot_bytes;
  layer.slots = slots;
  return layer;
}

inline CachePlan plan_of(std::vector<CacheLayer> layers) {
  return make_cache_plan(std::move(layers)).value();
}

}  // namespace kv8::kv_cache
