#include "models/decoder_weights.h"

#include <array>
#include <string_view>

#include "formats/tensor_names.h"
#include "models/family.h"
#include "models/tensor_source.h"
#include "numerics/dequantize.h"

namespace kv8::models {

namespace {

constexpr std::array<std::string_view, 3> kHeadNames = {"lm_head", "language_model.lm_head", "model.lm_head"};

Expected<LayerWeights> load_layer(TensorSource& source, const std::string& prefix,
                                  const LayerTensorNames& names, const LayerConfig& layer,
                                  const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  const float offset = config.norm_weight_offset;
  LayerWeights weights;
  KV8_ASSIGN_OR_RETURN(weights.attention_norm, source.norm(prefix, names.attention_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.post_attention_norm,
                       source.norm(prefix, names.post_attention_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.mlp_norm, source.norm(prefix, names.mlp_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.post_mlp_norm, source.norm(prefix, names.post_mlp_norm, hidden, offset));
  KV8_ASSIGN_OR_RETURN(weights.mixer, std::visit(
                                          [&](const AttentionConfig& mixer) -> Expected<MixerWeights> {
                                            return load_attention_weights(source, prefix, names, mixer,
                                                                          config);
                                          },
                                          layer.mixer));
  KV8_ASSIGN_OR_RETURN(weights.feed_forward,
                       std::visit(
                           [&](const DenseConfig& feed_forward) -> Expected<FeedForwardWeights> {
                             return load_dense_weights(source, prefix, names, feed_forward, config);
                           },
                           layer.feed_forward));
  return weights;
}

Expected<std::string> find_prefix(const formats::Checkpoint& checkpoint) {
  for (const std::string_view prefix : formats::kDecoderPrefixes) {
    if (checkpoint.has(fmt::format("{}embed_tokens.weight", prefix))) return std::string(prefix);
  }
  return make_error(ErrorCode::not_found, "{}: no tensor model.embed_tokens.weight (nor under {}, {})",
                    checkpoint.path().string(), formats::kDecoderPrefixes[1], formats::kDecoderPrefixes[2]);
}

// Null where the embedding serves. A checkpoint that ties the two may still carry a copy of the head; it is
// ignored, as transformers does.
Expected<std::unique_ptr<ops::Matrix>> load_head(TensorSource& source, const formats::Checkpoint& checkpoint,
                                                 const ModelConfig& config) {
  for (const std::string_view name : kHeadNames) {
    if (config.tied_embeddings) {
      source.ignore(fmt::format("{}.", name));
    } else if (source.has(fmt::format("{}.weight", name))) {
      return source.matrix(std::string(name), config.vocab_size, config.hidden_size, false);
    }
  }
  if (config.tied_embeddings) return nullptr;
  return make_error(ErrorCode::not_found, "{}: no tensor lm_head.weight, and tie_word_embeddings is not true",
                    checkpoint.config_source());
}

Expected<std::vector<float>> load_frequency_divisors(TensorSource& source, const ModelConfig& config) {
  std::vector<float> divisors;
  if (config.rope_frequency_tensor.empty()) return divisors;
  const auto count = static_cast<int64_t>(config.ropes.front().inverse_frequencies.size());
  KV8_ASSIGN_OR_RETURN(const TensorView tensor,
                       source.vector(config.rope_frequency_tensor, count, kDivisorRange));
  divisors.resize(static_cast<size_t>(count));
  numerics::dequantize_row(tensor.dtype, tensor.data, count, divisors.data());
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
                       source.matrix(prefix + "embed_tokens", config.vocab_size, config.hidden_size, false));
  KV8_ASSIGN_OR_RETURN(weights.lm_head, load_head(source, checkpoint, config));
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
  KV8_RETURN_IF_ERROR(source.refuse_unread(family->leftovers));
  return weights;
}

}  // namespace kv8::models
