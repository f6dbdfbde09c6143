#include "models/decoder_weights.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string_view>

#include "formats/tensor_names.h"
#include "models/family.h"
#include "numerics/dequantize.h"

namespace kv8::models {

namespace {

constexpr std::array<std::string_view, 3> kHeadNames = {"lm_head", "language_model.lm_head", "model.lm_head"};

// Hands out tensors and remembers which.
class TensorSource {
 public:
  TensorSource(const formats::Checkpoint& checkpoint, ops::Ops& ops) : checkpoint_(checkpoint), ops_(ops) {}

  const TensorView* find(const std::string& name) {
    const TensorView* tensor = checkpoint_.find(name);
    if (tensor != nullptr) used_.insert(name);
    return tensor;
  }

  Expected<TensorView> get(const std::string& name, const Shape& shape) {
    KV8_ASSIGN_OR_RETURN(TensorView tensor, checkpoint_.tensor(name));
    used_.insert(name);
    if (tensor.shape != shape) {
      return make_error(ErrorCode::corrupt_data, "{}: tensor {}: shape {}, but the config asks for {}",
                        checkpoint_.config_source(), name, tensor.shape.to_string(), shape.to_string());
    }
    return tensor;
  }

  // name + ".weight", with the scales and the bias that lie beside it.
  Expected<ops::MatrixPart> part(const std::string& name, int64_t rows, int64_t cols) {
    ops::MatrixPart part;
    part.name = name;
    KV8_ASSIGN_OR_RETURN(part.data, get(name + ".weight", Shape{rows, cols}));
    for (const char* suffix : {".weight_scale", ".weight_scale_inv"}) {
      if (const TensorView* scale = find(name + suffix); scale != nullptr) part.scale = *scale;
    }
    if (find(name + ".bias") != nullptr) {
      KV8_ASSIGN_OR_RETURN(part.bias, get(name + ".bias", Shape{rows}));
    }
    return part;
  }

  Expected<std::unique_ptr<ops::Matrix>> matrix(const std::string& name, int64_t rows, int64_t cols) {
    KV8_ASSIGN_OR_RETURN(const ops::MatrixPart one, part(name, rows, cols));
    return ops_.load_matrix({&one, 1});
  }

  // An empty suffix gives null: the family has no such norm.
  Expected<std::unique_ptr<ops::Vector>> norm(const std::string& prefix, std::string_view suffix,
                                              int64_t size, float offset) {
    if (suffix.empty()) return nullptr;
    const std::string name = fmt::format("{}{}.weight", prefix, suffix);
    KV8_ASSIGN_OR_RETURN(const TensorView tensor, get(name, Shape{size}));
    return ops_.load_vector(name, tensor, offset);
  }

  ops::Ops& ops() { return ops_; }

  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const auto& name : checkpoint_.names()) {
      if (!used_.contains(std::string(name))) names.emplace_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  const formats::Checkpoint& checkpoint_;
  ops::Ops& ops_;
  std::set<std::string> used_;
};

Expected<LayerWeights> load_layer(TensorSource& source, const std::string& prefix,
                                  const LayerTensorNames& names, const LayerConfig& layer,
                                  const ModelConfig& config) {
  const auto full = [&](std::string_view suffix) { return fmt::format("{}{}", prefix, suffix); };
  const int64_t hidden = config.hidden_size;
  const int64_t q_rows = int64_t{layer.q_heads} * layer.head_dim;
  const int64_t kv_rows = int64_t{layer.kv_heads} * layer.head_dim;
  const float offset = config.norm_weight_offset;
  LayerWeights weights;
  KV8_ASSIGN_OR_RETURN(weights.attention_norm, source.norm(prefix, names.attention_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.post_attention_norm,
                       source.norm(prefix, names.post_attention_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.mlp_norm, source.norm(prefix, names.mlp_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.post_mlp_norm, source.norm(prefix, names.post_mlp_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.q_norm, source.norm(prefix, names.q_norm, layer.head_dim, offset));
  KV8_ASSIGN_OR_RETURN(weights.k_norm, source.norm(prefix, names.k_norm, layer.head_dim, offset));
  std::array<ops::MatrixPart, 3> qkv;
  KV8_ASSIGN_OR_RETURN(qkv[0], source.part(full(names.q), q_rows, hidden));
  KV8_ASSIGN_OR_RETURN(qkv[1], source.part(full(names.k), kv_rows, hidden));
  KV8_ASSIGN_OR_RETURN(qkv[2], source.part(full(names.v), kv_rows, hidden));
  KV8_ASSIGN_OR_RETURN(weights.qkv, source.ops().load_matrix(qkv));
  KV8_ASSIGN_OR_RETURN(weights.o, source.matrix(full(names.o), hidden, q_rows));
  std::array<ops::MatrixPart, 2> gate_up;
  KV8_ASSIGN_OR_RETURN(gate_up[0], source.part(full(names.gate), layer.intermediate_size, hidden));
  KV8_ASSIGN_OR_RETURN(gate_up[1], source.part(full(names.up), layer.intermediate_size, hidden));
  KV8_ASSIGN_OR_RETURN(weights.gate_up, source.ops().load_matrix(gate_up));
  KV8_ASSIGN_OR_RETURN(weights.down, source.matrix(full(names.down), hidden, layer.intermediate_size));
  return weights;
}

Expected<std::string> find_prefix(const formats::Checkpoint& checkpoint) {
  for (const std::string_view prefix : formats::kDecoderPrefixes) {
    if (checkpoint.find(fmt::format("{}embed_tokens.weight", prefix)) != nullptr) return std::string(prefix);
  }
  return make_error(ErrorCode::not_found, "{}: no tensor model.embed_tokens.weight (nor under {}, {})",
                    checkpoint.config_source(), formats::kDecoderPrefixes[1], formats::kDecoderPrefixes[2]);
}

Expected<std::vector<float>> load_frequency_divisors(TensorSource& source, const ModelConfig& config) {
  std::vector<float> divisors;
  if (config.rope_frequency_tensor.empty()) return divisors;
  const size_t expected = config.ropes.front().inverse_frequencies.size();
  KV8_ASSIGN_OR_RETURN(const TensorView tensor,
                       source.get(config.rope_frequency_tensor, Shape{static_cast<int64_t>(expected)}));
  divisors.resize(expected);
  numerics::dequantize_row(tensor.dtype, tensor.data, static_cast<int64_t>(expected), divisors.data());
  return divisors;
}

}  // namespace

Expected<DecoderWeights> load_decoder_weights(const formats::Checkpoint& checkpoint,
                                              const ModelConfig& config, ops::Ops& ops,
                                              const LoadProgress& progress) {
  KV8_ASSIGN_OR_RETURN(const Family* family, find_family(config.model_type, checkpoint.config_source()));
  KV8_ASSIGN_OR_RETURN(const std::string prefix, find_prefix(checkpoint));
  TensorSource source(checkpoint, ops);
  DecoderWeights weights;
  KV8_ASSIGN_OR_RETURN(weights.embedding,
                       source.matrix(prefix + "embed_tokens", config.vocab_size, config.hidden_size));
  // A checkpoint that ties the two may still carry a copy of the head; it is ignored, as transformers does.
  for (const std::string_view name : kHeadNames) {
    const std::string head(name);
    if (source.find(head + ".weight") == nullptr) continue;
    if (!config.tied_embeddings) {
      KV8_ASSIGN_OR_RETURN(weights.lm_head, source.matrix(head, config.vocab_size, config.hidden_size));
    }
    break;
  }
  if (!config.tied_embeddings && weights.lm_head == nullptr) {
    return make_error(ErrorCode::not_found,
                      "{}: no tensor lm_head.weight, and tie_word_embeddings is not true",
                      checkpoint.config_source());
  }
  KV8_ASSIGN_OR_RETURN(weights.final_norm,
                       source.norm(prefix, "norm", config.hidden_size, config.norm_weight_offset));
  for (size_t index = 0; index < config.layers.size(); ++index) {
    KV8_ASSIGN_OR_RETURN(weights.layers.emplace_back(),
                         load_layer(source, fmt::format("{}layers.{}.", prefix, index), family->tensors,
                                    config.layers[index], config));
    const auto done = static_cast<int64_t>(index) + 1;
    const auto total = static_cast<int64_t>(config.layers.size());
    if (progress && !progress(done, total)) {
      return make_error(ErrorCode::cancelled, "cancelled after loading {} of {} layers", done, total);
    }
  }
  KV8_ASSIGN_OR_RETURN(weights.rope_frequency_divisors, load_frequency_divisors(source, config));
  weights.unused = source.unused();
  return weights;
}

}  // namespace kv8::models
