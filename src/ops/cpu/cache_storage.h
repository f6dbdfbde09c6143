// The CPU's KV cache: one region of K and one of V per layer, reserved whole and committed by the kernel page
// by page as tokens are written, so that a large pool costs only what is used of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/cpu/layer_cache.h"
#include "core/error.h"
#include "kv_cache/cache_plan.h"
#include "ops/cpu/lazy_memory.h"

namespace kv8::ops::cpu {

class CacheStorage {
 public:
  // pages[g]: pages of group g. With KV8_POISON_CACHE=1 every byte starts as 0x7F (a NaN in e4m3, 3e38 in the
  // wider formats), so that a read of a slot never written shows. Errors: invalid_argument, unsupported
  // (layers other than K and V of one size), out_of_memory.
  static Expected<CacheStorage> allocate(const kv_cache::CachePlan& plan, std::span<const int64_t> pages);

  // Errors: invalid_argument for a layer that has no cache of its own, for a wrong number of scales, or one
  // that isn't positive and finite.
  Status set_scales(int layer, std::span<const float> k_scale, std::span<const float> v_scale);

  int layers() const { return static_cast<int>(layers_.size()); }
  int group(int layer) const { return layers_[static_cast<size_t>(layer)].group; }
  // The layer whose cache `layer` reads: itself, unless it shares another's.
  int owner(int layer) const { return layers_[static_cast<size_t>(layer)].owner; }
  attention::cpu::LayerCacheView view(int layer) const;

 private:
  struct Layer {
    LazyMemory k;
    LazyMemory v;
    kv_cache::CacheLayer plan;
    int group = 0;
    int owner = 0;
    std::vector<float> k_scale;
    std::vector<float> v_scale;
  };
  std::vector<Layer> layers_;
};

}  // namespace kv8::ops::cpu
