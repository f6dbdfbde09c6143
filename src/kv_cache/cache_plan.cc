#include "kv_cache/cache_plan.h"

#include <algorithm>
#include <charconv>

namespace kv8::kv_cache {

namespace {

int64_t pages_of(int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

}  // namespace

int64_t CacheGroup::pages_for(int64_t tokens, int64_t chunk) const {
  const int64_t all = pages_of(tokens);
  if (window == 0) return all;
  // While a chunk is processed its first query looks `window - 1` keys back and its last token is stored
  // already; the stretch may straddle a page at both ends.
  return std::min(all, pages_of(window + std::max<int64_t>(chunk, 1) - 1) + 1);
}

int64_t CachePlan::token_bytes() const {
  int64_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.window == 0 ? group.token_bytes : 0;
  return bytes;
}

int64_t CachePlan::window_bytes() const {
  int64_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.window * group.token_bytes;
  return bytes;
}

int64_t CachePlan::scale_bytes() const {
  int64_t bytes = 0;
  for (const CacheLayer& layer : layers) {
    if (layer.format == KvFormat::fp8 && layer.shared_with < 0)
      bytes += 2 * layer.kv_heads * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

int64_t CachePlan::sequence_bytes(int64_t tokens, int64_t chunk) const {
  int64_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.pages_for(tokens, chunk) * group.page_bytes();
  return bytes;
}

Expected<CachePlan> make_cache_plan(std::vector<CacheLayer> layers) {
  CachePlan plan;
  plan.layers = std::move(layers);
  for (size_t index = 0; index < plan.layers.size(); ++index) {
    CacheLayer& layer = plan.layers[index];
    if (layer.kv_heads <= 0 || layer.head_dim <= 0 || layer.window < 0) {
      return make_error(ErrorCode::invalid_argument,
                        "cache layer {}: {} KV heads of {} dims, window {}: expected positive sizes", index,
                        layer.kv_heads, layer.head_dim, layer.window);
    }
    if (layer.shared_with >= 0) {
      const auto source = static_cast<size_t>(layer.shared_with);
      if (source >= index || plan.layers[source].shared_with >= 0 ||
          plan.layers[source].window != layer.window) {
        return make_error(ErrorCode::invalid_argument,
                          "cache layer {}: shares the cache of layer {}, which must be an earlier layer with "
                          "a cache of its own "
                          "and the same window",
                          index, source);
      }
      layer.format = plan.layers[source].format;
      layer.group = plan.layers[source].group;
      continue;
    }
    auto group = std::ranges::find(plan.groups, layer.window, &CacheGroup::window);
    if (group == plan.groups.end())
      group = plan.groups.insert(plan.groups.end(), CacheGroup{layer.window, {}, 0});
    layer.group = static_cast<int>(group - plan.groups.begin());
    group->layers.push_back(static_cast<int>(index));
    group->token_bytes += layer.token_bytes();
  }
  return plan;
}

Status apply_skip_layers(const std::string& text, std::vector<CacheLayer>& layers) {
  const auto to_bf16 = [](CacheLayer& layer) {
    if (layer.format == KvFormat::fp8) layer.format = KvFormat::bf16;
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    if (item == "sliding_window") {
      for (CacheLayer& layer : layers) {
        if (layer.window > 0) to_bf16(layer);
      }
      continue;
    }
    size_t index = 0;
    const auto [last, error] = std::from_chars(item.data(), item.data() + item.size(), index);
    if (error != std::errc() || last != item.data() + item.size() || item.empty()) {
      return make_error(
          ErrorCode::invalid_argument,
          "skip-layers: '{}' is neither a layer number nor sliding_window (example: sliding_window,0,5)",
          item);
    }
    if (index >= layers.size()) {
      return make_error(ErrorCode::invalid_argument,
                        "skip-layers: there is no layer {}; the model has layers 0 to {}", index,
                        layers.size() - 1);
    }
    to_bf16(layers[index]);
  }
  return {};
}

}  // namespace kv8::kv_cache
