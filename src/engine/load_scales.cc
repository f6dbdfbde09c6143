// The scales of an FP8 cache: from the checkpoint, from a file of their own, or none.
#include <algorithm>

#include "engine/engine.h"
#include "formats/kv_scales.h"

namespace kv8::engine {

namespace {

// A scale per layer serves all of its heads.
std::vector<float> per_head(const std::vector<float>& scales, int kv_heads) {
  return scales.size() == 1 ? std::vector<float>(static_cast<size_t>(kv_heads), scales.front()) : scales;
}

}  // namespace

Status Engine::load_scales() {
  const bool wanted = std::ranges::any_of(
      plan_.layers, [](const auto& layer) { return layer.format == kv_cache::KvFormat::fp8; });
  if (options_.kv_scales == "1.0") return {};
  std::vector<int> kv_heads;
  for (const kv_cache::CacheLayer& layer : plan_.layers) kv_heads.push_back(layer.kv_heads);
  formats::KvScales scales;
  // Read even when no layer is FP8: scales that bind to nothing are an error of the file in any case.
  if (options_.kv_scales.empty()) {
    KV8_ASSIGN_OR_RETURN(scales, formats::find_kv_scales(*checkpoint_, kv_heads));
  } else {
    KV8_ASSIGN_OR_RETURN(scales, formats::read_kv_scales(options_.kv_scales, kv_heads));
    if (scales.empty()) {
      return make_error(ErrorCode::not_found,
                        "{}: no KV scales in it (names like model.layers.0.self_attn.k_scale)",
                        options_.kv_scales);
    }
  }
  if (!wanted) return {};
  int64_t without = 0;
  for (size_t index = 0; index < plan_.layers.size(); ++index) {
    const kv_cache::CacheLayer& layer = plan_.layers[index];
    if (layer.format != kv_cache::KvFormat::fp8 || layer.shared_with >= 0) continue;
    if (!scales.layers[index]) {
      ++without;
      continue;
    }
    KV8_RETURN_IF_ERROR(ops_->set_scales(static_cast<int>(index),
                                         per_head(scales.layers[index]->k, layer.kv_heads),
                                         per_head(scales.layers[index]->v, layer.kv_heads)));
  }
  scales_description_ = scales.empty() ? "none: 1.0"
                        : without > 0  ? fmt::format("calibrated, but 1.0 in {} layers", without)
                                       : "calibrated";
  if (without > 0) {
    warnings_.push_back(fmt::format(
        "no KV scales for {} of {} layers: 1.0 is used there; values beyond 448 saturate and are counted",
        without, plan_.layers.size()));
  }
  return {};
}

}  // namespace kv8::engine
