#include "kv_cache/cache_plan.h"

#include <algorithm>
#include <charconv>

namespace kv8::kv_cache {

namespace {

constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxDims = 1 << 16;
constexpr int64_t kMaxSlotBytes = int64_t{1} << 40;
constexpr int kMaxSlots = 1 << 10;

Status validate(const CacheLayer& layer, size_t index) {
  const auto refuse = [&](const std::string& expected) {
    return make_error(ErrorCode::invalid_argument,
                      "cache layer {} ({}): {} KV heads, K of {} dims, V of {}, window {}, {} slots of {} "
                      "bytes: expected {}",
                      index, to_string(layer.kind), layer.kv_heads, layer.k_dim, layer.v_dim, layer.window,
                      layer.slots, layer.slot_bytes, expected);
  };
  const auto within = [](int64_t value, int64_t limit) { return value > 0 && value <= limit; };
  if (layer.window < 0) return refuse("a window of 0 (none) or more");
  if (layer.kind == CacheKind::state) {
    if (layer.window != 0 || layer.kv_heads != 0 || layer.k_dim != 0 || layer.v_dim != 0)
      return refuse("no heads, dims or window");
    if (!within(layer.slots, kMaxSlots) || !within(layer.slot_bytes, kMaxSlotBytes))
      return refuse(fmt::format("1 to {} slots of 1 to {} bytes", kMaxSlots, kMaxSlotBytes));
    return {};
  }
  if (layer.slots != 0 || layer.slot_bytes != 0) return refuse("no slots");
  if (!within(layer.kv_heads, kMaxHeads) || !within(layer.k_dim, kMaxDims) || !within(layer.v_dim, kMaxDims))
    return refuse(fmt::format("1 to {} heads and 1 to {} dims", kMaxHeads, kMaxDims));
  if (layer.kind == CacheKind::latent && (layer.kv_heads != 1 || layer.v_dim > layer.k_dim))
    return refuse("one head, and V no longer than K, of which it is the beginning");
  return {};
}

// An earlier layer with a cache of its own and the same window; the rest is taken over from it.
Status share(std::vector<CacheLayer>& layers, size_t index) {
  CacheLayer& layer = layers[index];
  const auto source = static_cast<size_t>(layer.shared_with);
  if (source >= index || layers[source].shared_with >= 0 || layers[source].window != layer.window ||
      layers[source].kind != layer.kind) {
    return make_error(ErrorCode::invalid_argument,
                      "cache layer {}: shares the cache of layer {}, which must be an earlier layer with a "
                      "cache of its own, of the same kind and window",
                      index, source);
  }
  layer.format = layers[source].format;
  layer.group = layers[source].group;
  return {};
}

}  // namespace

std::string_view to_string(CacheKind kind) {
  switch (kind) {
    case CacheKind::paged_kv:
      return "K and V";
    case CacheKind::latent:
      return "latent";
    case CacheKind::state:
      return "state";
  }
  return "?";
}

int64_t CacheLayer::key_bytes() const {
  if (shared_with >= 0 || !paged()) return 0;
  return int64_t{kv_heads} * k_dim * static_cast<int64_t>(element_bytes(format));
}

int64_t CacheLayer::value_bytes() const {
  if (shared_with >= 0 || kind != CacheKind::paged_kv) return 0;
  return int64_t{kv_heads} * v_dim * static_cast<int64_t>(element_bytes(format));
}

int64_t CacheGroup::page_bytes() const {
  return kind == CacheKind::state ? slot_bytes : token_bytes * kPageTokens;
}

int64_t CacheGroup::pages_for(int64_t tokens, int64_t chunk) const {
  if (kind == CacheKind::state) return tokens > 0 ? slots : 0;
  const int64_t all = pages_of(tokens);
  if (window == 0) return all;
  // While a chunk is processed its first query looks `window - 1` keys back and its last token is stored
  // already; the stretch may straddle a page at both ends. A window or chunk beyond `tokens` is no different
  // from one of `tokens` (and can't overflow the sum).
  const int64_t stretch =
      std::min(window, tokens) + std::clamp<int64_t>(chunk, 1, std::max<int64_t>(tokens, 1)) - 1;
  return std::min(all, pages_of(stretch) + 1);
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

int64_t CachePlan::state_bytes() const {
  int64_t bytes = 0;
  for (const CacheGroup& group : groups) bytes += group.slots * group.slot_bytes;
  return bytes;
}

int64_t CachePlan::scale_bytes() const {
  int64_t scales = 0;
  for (const CacheLayer& layer : layers) {
    if (layer.format != KvFormat::fp8 || layer.shared_with >= 0 || !layer.paged()) continue;
    // One for K and one for V of each head; of a latent, one for what V is and one for the rotary dims.
    scales += 2 * layer.kv_heads;
  }
  return scales * static_cast<int64_t>(sizeof(float));
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
    KV8_RETURN_IF_ERROR(validate(layer, index));
    if (layer.shared_with >= 0) {
      KV8_RETURN_IF_ERROR(share(plan.layers, index));
      continue;
    }
    auto group = std::ranges::find_if(plan.groups, [&](const CacheGroup& one) {
      return one.kind == layer.kind && one.window == layer.window && one.slots == layer.slots;
    });
    if (group == plan.groups.end()) {
      group = plan.groups.insert(plan.groups.end(), CacheGroup{});
      group->kind = layer.kind;
      group->window = layer.window;
      group->slots = layer.slots;
    }
    layer.group = static_cast<int>(group - plan.groups.begin());
    group->layers.push_back(static_cast<int>(index));
    group->token_bytes += layer.token_bytes();
    group->slot_bytes += layer.slot_bytes;
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
