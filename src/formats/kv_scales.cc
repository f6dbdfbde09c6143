#include "formats/kv_scales.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include <fmt/ranges.h>

#include "core/half.h"
#include "formats/tensor_names.h"

namespace kv8::formats {

namespace {

using Target = KvScaleTarget;

constexpr std::string_view kAttention = "self_attn.";

constexpr KvScaleSpelling kSpellings[] = {
    // compressed-tensors (llm-compressor), Quark, calibration's kv_scales.safetensors
    {"k_scale", Target::k},
    {"v_scale", Target::v},
    {"q_scale", Target::q},
    // the parameters of vLLM's attention layer, and its buffers, in checkpoints saved from it
    {"attn.k_scale", Target::k},
    {"attn.v_scale", Target::v},
    {"attn.q_scale", Target::q},
    {"_k_scale", Target::k},
    {"_v_scale", Target::v},
    {"_q_scale", Target::q},
    {"attn._k_scale", Target::k},
    {"attn._v_scale", Target::v},
    {"attn._q_scale", Target::q},
    // ModelOpt; the second three with fused projections
    {"k_proj.k_scale", Target::k},
    {"v_proj.v_scale", Target::v},
    {"q_proj.q_scale", Target::q},
    {"qkv_proj.k_scale", Target::k},
    {"qkv_proj.v_scale", Target::v},
    {"qkv_proj.q_scale", Target::q},
    // older compressed-tensors, Quark
    {"k_proj.output_scale", Target::k},
    {"v_proj.output_scale", Target::v},
    {"q_proj.output_scale", Target::q},
    // Gemma's quantisation-aware checkpoints
    {"k_cache_scale", Target::k},
    {"v_cache_scale", Target::v},
    // one number for both: AutoFP8, older vLLM and ModelOpt
    {"kv_scale", Target::k_and_v},
    {"attn.kv_scale", Target::k_and_v},
    {"kv_cache_scale", Target::k_and_v},
    {"kv_cache_scaling_factor", Target::k_and_v},
};

// Any name that ends like a scale of the cache must bind, wherever it lies and whoever made the name.
bool looks_like_kv_scale(std::string_view name) {
  constexpr std::string_view kEnds[] = {
      "k_scale",
      "v_scale",
      "kv_scale",
      "k_scales",
      "v_scales",
      "kv_scales",
      "k_scale_inv",
      "v_scale_inv",
      "kv_scale_inv",
      "key_scale",
      "value_scale",
      "cache_scale",
      "cache_scales",
      "k_scaling_factor",
      "v_scaling_factor",
      "kv_scaling_factor",
      "cache_scaling_factor",
      "k_proj.output_scale",
      "v_proj.output_scale",
      "qkv_proj.output_scale",
      "k_bmm_quantizer._amax",
      "v_bmm_quantizer._amax",
  };
  return std::ranges::any_of(kEnds, [name](std::string_view end) {
    if (!name.ends_with(end)) return false;
    if (name.size() == end.size()) return true;
    const char before = name[name.size() - end.size() - 1];
    return before == '.' || before == '_';
  });
}

constexpr float kE4m3Max = 448.0F;

struct Place {
  size_t layer = 0;
  Target target = Target::k;
};

// "layers.N.self_attn.<spelling>" of a layer that has a cache.
std::optional<Place> parse_below_prefix(std::string_view name, std::span<const int> kv_heads) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return std::nullopt;
  name.remove_prefix(kLayers.size());
  Place place;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place.layer);
  if (error != std::errc()) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  if (!name.starts_with('.') || !name.substr(1).starts_with(kAttention)) return std::nullopt;
  name.remove_prefix(1 + kAttention.size());
  const auto* spelling = std::ranges::find(kSpellings, name, &KvScaleSpelling::name);
  if (spelling == std::end(kSpellings)) return std::nullopt;
  if (place.layer >= kv_heads.size() || kv_heads[place.layer] == 0) return std::nullopt;
  place.target = spelling->target;
  return place;
}

// Where a name binds; nullopt if it is no scale's name, or of no layer that has a cache.
std::optional<Place> parse_name(std::string_view name, std::span<const int> kv_heads) {
  for (const std::string_view prefix : kDecoderPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (const auto place = parse_below_prefix(name.substr(prefix.size()), kv_heads)) return place;
  }
  return std::nullopt;
}

float load_element(const TensorView& view, size_t index) {
  if (view.dtype == DType::f32) {
    float value = 0;
    std::memcpy(&value, view.data + index * sizeof(value), sizeof(value));
    return value;
  }
  uint16_t code = 0;
  std::memcpy(&code, view.data + index * sizeof(code), sizeof(code));
  return view.dtype == DType::bf16 ? bf16_to_float(code) : f16_to_float(code);
}

// The numbers of a scale; empty for -1, which means absent.
Expected<std::vector<float>> read_scale(const NamedTensor& tensor, int kv_heads, std::string_view source) {
  const TensorView& view = tensor.view;
  if (view.dtype != DType::f32 && view.dtype != DType::bf16 && view.dtype != DType::f16) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: dtype {}; expected f32, bf16 or f16", source,
                      tensor.name, to_string(view.dtype));
  }
  const int64_t count = view.shape.elements();
  const auto long_axes = std::ranges::count_if(view.shape.dims(), [](int64_t dim) { return dim != 1; });
  if (long_axes > 1 || (count != 1 && count != kv_heads)) {
    return make_error(ErrorCode::corrupt_data,
                      "{}: {}: shape {}; expected one number or one for each of {} KV heads", source,
                      tensor.name, view.shape.to_string(), kv_heads);
  }
  std::vector<float> values;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) values.push_back(load_element(view, i));
  if (std::ranges::all_of(values, [](float value) { return value == -1.0F; })) return std::vector<float>();
  for (const float value : values) {
    if (!std::isfinite(value) || value <= 0.0F) {
      return make_error(ErrorCode::corrupt_data,
                        "{}: {}: {}; expected a positive, finite number, or -1 for none", source, tensor.name,
                        value);
    }
    // Keys and values are multiplied by the reciprocal, codes by the scale.
    if (!std::isfinite(1.0F / value) || !std::isfinite(value * kE4m3Max)) {
      return make_error(ErrorCode::corrupt_data,
                        "{}: {}: {} is too {} for a scale: {} isn't finite in float32", source, tensor.name,
                        value, value < 1 ? "small" : "large", value < 1 ? "its reciprocal" : "448 times it");
    }
  }
  return values;
}

// One layer's scales while they are gathered, with the names they came from.
struct Gathered {
  std::vector<float> k;
  std::vector<float> v;
  std::string k_name;
  std::string v_name;
};

// One number says the same as that number for each head.
bool agree(const std::vector<float>& a, const std::vector<float>& b) {
  const auto differs_from = [](const std::vector<float>& values, float one) {
    return std::ranges::any_of(values, [one](float value) { return value != one; });
  };
  if (a.size() == b.size()) return a == b;
  return a.size() == 1 ? !differs_from(b, a.front()) : b.size() == 1 && !differs_from(a, b.front());
}

Status set_scale(std::vector<float>& values, std::string& from, const NamedTensor& tensor,
                 const std::vector<float>& scale, std::string_view source) {
  if (!from.empty()) {
    if (agree(values, scale)) return {};
    return make_error(ErrorCode::corrupt_data,
                      "{}: {} and {} give different values for the same scale: {} and {}", source, from,
                      tensor.name, fmt::join(values, " "), fmt::join(scale, " "));
  }
  values = scale;
  from = tensor.name;
  return {};
}

Status refuse_left_over(const std::vector<std::string_view>& left_over, size_t layers,
                        std::string_view source) {
  if (left_over.empty()) return {};
  constexpr size_t kShown = 4;
  const std::span<const std::string_view> shown(left_over.data(), std::min(kShown, left_over.size()));
  return make_error(
      ErrorCode::corrupt_data,
      "{}: {} KV scales belong to no layer of this model ({} layers; no such layer, one without "
      "a KV cache, or a spelling that kv8 doesn't know): {}{}",
      source, left_over.size(), layers, fmt::join(shown, ", "), left_over.size() > kShown ? ", ..." : "");
}

Expected<std::optional<LayerKvScales>> pair_up(Gathered& gathered, size_t layer, std::string_view source) {
  if (gathered.k.empty() && gathered.v.empty()) return std::nullopt;
  if (gathered.k.empty() || gathered.v.empty()) {
    const bool has_k = !gathered.k.empty();
    return make_error(ErrorCode::corrupt_data,
                      "{}: layer {}: {} is there, but no scale of {} for the same layer", source, layer,
                      has_k ? gathered.k_name : gathered.v_name, has_k ? "V" : "K");
  }
  return LayerKvScales{std::move(gathered.k), std::move(gathered.v)};
}

}  // namespace

std::span<const KvScaleSpelling> kv_scale_spellings() {
  return kSpellings;
}

bool is_kv_scale_name(std::string_view name) {
  return looks_like_kv_scale(name) ||
         std::ranges::any_of(kSpellings, [name](const KvScaleSpelling& spelling) {
           return spelling.target == Target::q && name.ends_with(spelling.name);
         });
}

bool KvScales::empty() const {
  return std::ranges::none_of(layers, [](const auto& layer) { return layer.has_value(); });
}

Expected<KvScales> bind_kv_scales(std::span<const NamedTensor> tensors, std::span<const int> kv_heads,
                                  std::string_view source) {
  KvScales scales;
  std::vector<Gathered> gathered(kv_heads.size());
  std::vector<std::string_view> left_over;
  for (const NamedTensor& tensor : tensors) {
    const auto place = parse_name(tensor.name, kv_heads);
    if (!place) {
      if (looks_like_kv_scale(tensor.name)) left_over.push_back(tensor.name);
      continue;
    }
    if (place->target == Target::q) {
      ++scales.q_scales;
      continue;
    }
    KV8_ASSIGN_OR_RETURN(const std::vector<float> scale, read_scale(tensor, kv_heads[place->layer], source));
    if (scale.empty()) continue;  // absent: another spelling may give it
    Gathered& layer = gathered[place->layer];
    if (place->target != Target::v) {
      KV8_RETURN_IF_ERROR(set_scale(layer.k, layer.k_name, tensor, scale, source));
    }
    if (place->target != Target::k) {
      KV8_RETURN_IF_ERROR(set_scale(layer.v, layer.v_name, tensor, scale, source));
    }
  }
  KV8_RETURN_IF_ERROR(refuse_left_over(left_over, kv_heads.size(), source));
  for (size_t layer = 0; layer < gathered.size(); ++layer) {
    KV8_ASSIGN_OR_RETURN(scales.layers.emplace_back(), pair_up(gathered[layer], layer, source));
  }
  return scales;
}

Expected<KvScales> find_kv_scales(const Checkpoint& checkpoint, std::span<const int> kv_heads) {
  std::vector<NamedTensor> tensors;
  for (const std::string_view name : checkpoint.names()) {
    if (const TensorView* view = checkpoint.find(name); view != nullptr) {
      tensors.push_back({std::string(name), *view});
    }
  }
  return bind_kv_scales(tensors, kv_heads, checkpoint.path().string());
}

Expected<KvScales> read_kv_scales(const std::filesystem::path& path, std::span<const int> kv_heads) {
  KV8_ASSIGN_OR_RETURN(const Safetensors file, Safetensors::open(path));
  std::vector<NamedTensor> tensors;
  for (const std::string& name : file.names()) tensors.push_back({name, *file.find(name)});
  return bind_kv_scales(tensors, kv_heads, path.string());
}

}  // namespace kv8::formats
