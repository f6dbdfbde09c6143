// The KV cache scales that a checkpoint brings: stored = e4m3(x / scale). Every scale of the file is bound to
// a layer, or is an error; none is dropped in silence.
//
// A scale is named <decoder prefix>layers.N.self_attn.<spelling>: the prefixes are those of
// formats/tensor_names.h, the spellings those of kv_scale_spellings(). It is a number, [1] or [kv_heads], in
// F32, BF16 or F16. -1 means absent. Scales of Q are counted and not read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "formats/checkpoint.h"
#include "formats/safetensors.h"

namespace kv8::formats {

enum class KvScaleTarget : uint8_t { k, v, k_and_v, q };

struct KvScaleSpelling {
  std::string_view name;  // after "self_attn."
  KvScaleTarget target;
};

// Every spelling that vLLM, ModelOpt, Quark and llm-compressor write or read.
std::span<const KvScaleSpelling> kv_scale_spellings();

struct LayerKvScales {
  std::vector<float> k;  // one, or one for each KV head; positive and finite, and so are their reciprocals
  std::vector<float> v;
};

struct KvScales {
  std::vector<std::optional<LayerKvScales>> layers;  // nullopt: the file has none for this layer
  int q_scales = 0;                                  // how many scales of Q there are

  bool empty() const;  // no layer has any
};

// kv_heads: of each layer of the model, 0 for a layer without a KV cache. Errors name file and tensor:
// corrupt_data for a scale that is zero, negative (but -1), of a wrong shape, or so small or large that
// stored numbers times it aren't finite; for one of K and V without the other; for two spellings of a scale
// that disagree; and for whatever looks like a KV scale and binds to no layer.
Expected<KvScales> find_kv_scales(const Checkpoint& checkpoint, std::span<const int> kv_heads);

// The same from a file of its own, as calibration writes it (kv_scales.safetensors).
Expected<KvScales> read_kv_scales(const std::filesystem::path& path, std::span<const int> kv_heads);

// Whether a tensor's name ends like a scale of the cache or of Q, wherever it lies. Those that belong to no
// layer are find_kv_scales' errors.
bool is_kv_scale_name(std::string_view name);

// The common part: `tensors` may hold anything else beside scales. `source` names them in messages.
Expected<KvScales> bind_kv_scales(std::span<const NamedTensor> tensors, std::span<const int> kv_heads,
                                  std::string_view source);

}  // namespace kv8::formats
