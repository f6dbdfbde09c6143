#include "ops/cpu/cache_storage.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/check.h"

namespace kv8::ops::cpu {

Expected<CacheStorage> CacheStorage::allocate(const kv_cache::CachePlan& plan,
                                              std::span<const int64_t> pages) {
  if (pages.size() != plan.groups.size()) {
    return make_error(ErrorCode::invalid_argument, "KV cache: page counts for {} groups; the plan has {}",
                      pages.size(), plan.groups.size());
  }
  const char* poison_switch = std::getenv("KV8_POISON_CACHE");
  const bool poison = poison_switch != nullptr && std::string_view(poison_switch) == "1";
  CacheStorage storage;
  storage.layers_.resize(plan.layers.size());
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    Layer& layer = storage.layers_[i];
    layer.plan = plan.layers[i];
    layer.owner = layer.plan.shared_with >= 0 ? layer.plan.shared_with : static_cast<int>(i);
    layer.group = plan.layers[static_cast<size_t>(layer.owner)].group;
    KV8_CHECK(layer.group >= 0 && static_cast<size_t>(layer.group) < pages.size(), "layer {} of group {}", i,
              layer.group);
    if (layer.owner != static_cast<int>(i)) continue;
    if (layer.plan.kind != kv_cache::CacheKind::paged_kv || layer.plan.k_dim != layer.plan.v_dim) {
      return make_error(
          ErrorCode::unsupported,
          "cache layer {} ({}, K of {} dims, V of {}): the CPU keeps keys and values of one size", i,
          to_string(layer.plan.kind), layer.plan.k_dim, layer.plan.v_dim);
    }
    layer.k_scale.assign(static_cast<size_t>(layer.plan.kv_heads), 1.0F);
    layer.v_scale = layer.k_scale;
    const int64_t bytes =
        pages[static_cast<size_t>(layer.group)] * kv_cache::kPageTokens * layer.plan.key_bytes();
    KV8_ASSIGN_OR_RETURN(layer.k, LazyMemory::reserve(static_cast<size_t>(bytes), "KV cache"));
    KV8_ASSIGN_OR_RETURN(layer.v, LazyMemory::reserve(static_cast<size_t>(bytes), "KV cache"));
    if (poison) {
      std::memset(layer.k.data(), 0x7F, layer.k.size());
      std::memset(layer.v.data(), 0x7F, layer.v.size());
    }
  }
  return storage;
}

Status CacheStorage::set_scales(int layer, std::span<const float> k_scale, std::span<const float> v_scale) {
  if (layer < 0 || layer >= layers() || owner(layer) != layer) {
    return make_error(ErrorCode::invalid_argument,
                      "KV scales for cache layer {}, which has no cache of its own", layer);
  }
  Layer& target = layers_[static_cast<size_t>(layer)];
  for (const auto& scales : {k_scale, v_scale}) {
    if (scales.size() != target.k_scale.size()) {
      return make_error(ErrorCode::invalid_argument,
                        "cache layer {}: {} KV scales; expected one per KV head, {}", layer, scales.size(),
                        target.k_scale.size());
    }
    for (const float scale : scales) {
      if (!(scale > 0.0F) || !std::isfinite(scale)) {
        return make_error(ErrorCode::invalid_argument,
                          "cache layer {}: a KV scale of {}; expected a positive number", layer, scale);
      }
    }
  }
  target.k_scale.assign(k_scale.begin(), k_scale.end());
  target.v_scale.assign(v_scale.begin(), v_scale.end());
  return {};
}

attention::cpu::LayerCacheView CacheStorage::view(int layer) const {
  const Layer& owned = layers_[static_cast<size_t>(owner(layer))];
  return {.k = owned.k.data(),
          .v = owned.v.data(),
          .format = owned.plan.format,
          .kv_heads = owned.plan.kv_heads,
          .head_dim = owned.plan.k_dim,
          .k_scale = owned.k_scale.data(),
          .v_scale = owned.v_scale.data()};
}

}  // namespace kv8::ops::cpu
