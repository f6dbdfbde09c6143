#include "models/decoder.h"

#include <algorithm>

#include "core/check.h"

namespace kv8::models {

Expected<std::unique_ptr<Decoder>> Decoder::create(ModelConfig config, DecoderWeights weights, ops::Ops& ops,
                                                   const DecoderLimits& limits) {
  KV8_CHECK(limits.rows > 0 && limits.logit_rows > 0, "{} rows, {} logit rows", limits.rows,
            limits.logit_rows);
  std::unique_ptr<Decoder> decoder(new Decoder(std::move(config), std::move(weights), ops, limits));
  KV8_RETURN_IF_ERROR(decoder->allocate());
  return decoder;
}

Decoder::Decoder(ModelConfig config, DecoderWeights weights, ops::Ops& ops, const DecoderLimits& limits)
    : config_(std::move(config)), weights_(std::move(weights)), ops_(ops), limits_(limits) {
  if (!weights_.rope_frequency_divisors.empty()) {
    std::vector<float>& frequencies = config_.ropes.front().inverse_frequencies;
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= weights_.rope_frequency_divisors[i];
  }
  for (size_t index = 0; index < config_.layers.size(); ++index) {
    const LayerConfig& layer = config_.layers[index];
    ops::AttentionLayer& attention = attention_.emplace_back();
    attention.cache_layer = static_cast<int>(index);
    attention.q_heads = layer.q_heads;
    attention.kv_heads = layer.kv_heads;
    attention.head_dim = layer.head_dim;
    attention.rope = &config_.ropes[static_cast<size_t>(layer.rope)];
    attention.q_norm = weights_.layers[index].q_norm.get();
    attention.k_norm = weights_.layers[index].k_norm.get();
    attention.norm_epsilon = config_.norm_epsilon;
    attention.softmax_scale = config_.softmax_scale;
    attention.logit_soft_cap = config_.attention_soft_cap;
    attention.window = layer.window;
  }
}

Status Decoder::allocate() {
  int64_t qkv = 0;
  int64_t q = 0;
  int64_t intermediate = 0;
  for (const LayerConfig& layer : config_.layers) {
    qkv = std::max(qkv, int64_t{layer.q_heads + 2 * layer.kv_heads} * layer.head_dim);
    q = std::max(q, int64_t{layer.q_heads} * layer.head_dim);
    intermediate = std::max(intermediate, layer.intermediate_size);
  }
  const struct {
    ops::Activations& activations;
    int64_t rows;
    int64_t cols;
  } all[] = {
      {residual_, limits_.rows, config_.hidden_size},
      {hidden_, limits_.rows, config_.hidden_size},
      {branch_, limits_.rows, config_.hidden_size},
      {qkv_, limits_.rows, qkv},
      {q_, limits_.rows, q},
      {attended_, limits_.rows, q},
      {gate_up_, limits_.rows, 2 * intermediate},
      {activated_, limits_.rows, intermediate},
      {head_input_, limits_.logit_rows, config_.hidden_size},
      {logits_, limits_.logit_rows, config_.vocab_size},
  };
  for (const auto& one : all) {
    KV8_ASSIGN_OR_RETURN(one.activations, ops_.allocate_activations(one.rows, one.cols));
  }
  return {};
}

size_t Decoder::weight_bytes() const {
  size_t bytes = weights_.lm_head != nullptr ? weights_.lm_head->bytes() : weights_.embedding->bytes();
  for (const LayerWeights& layer : weights_.layers) {
    bytes += layer.qkv->bytes() + layer.o->bytes() + layer.gate_up->bytes() + layer.down->bytes();
  }
  return bytes;
}

// hidden_ comes in normalised and leaves normalised for `next_norm`'s layer.
Status Decoder::run_layer(size_t index, int64_t rows, const ops::Vector& next_norm) {
  const LayerConfig& layer = config_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const ops::AttentionLayer& attention = attention_[index];
  const auto view = [&](const ops::Activations& buffer, int64_t cols) {
    return ops::Activations{buffer.data, rows, cols};
  };
  const int64_t q_cols = int64_t{layer.q_heads} * layer.head_dim;
  const int64_t qkv_cols = int64_t{layer.q_heads + 2 * layer.kv_heads} * layer.head_dim;
  const ops::Activations residual = residual_.first_rows(rows);
  const ops::Activations hidden = hidden_.first_rows(rows);
  const ops::Activations branch = branch_.first_rows(rows);
  const ops::Activations qkv = view(qkv_, qkv_cols);
  const ops::Activations q = view(q_, q_cols);
  const ops::Activations attended = view(attended_, q_cols);
  const ops::Activations gate_up = view(gate_up_, 2 * layer.intermediate_size);
  const ops::Activations activated = view(activated_, layer.intermediate_size);

  ops_.linear(*weights.qkv, hidden, qkv);
  KV8_RETURN_IF_ERROR(ops_.rope_append_kv(attention, qkv, q));
  KV8_RETURN_IF_ERROR(ops_.paged_attention(attention, q, attended));
  ops_.linear(*weights.o, attended, branch);
  ops_.add_rms_norm(residual, branch, weights.post_attention_norm.get(), *weights.mlp_norm,
                    config_.norm_epsilon, hidden);

  ops_.linear(*weights.gate_up, hidden, gate_up);
  ops_.gated_activation(config_.activation, gate_up, activated);
  ops_.linear(*weights.down, activated, branch);
  ops_.add_rms_norm(residual, branch, weights.post_mlp_norm.get(), next_norm, config_.norm_epsilon, hidden);
  return {};
}

Expected<ops::Activations> Decoder::forward(const ops::Step& step, std::span<const int32_t> logit_rows) {
  const auto rows = static_cast<int64_t>(step.tokens.size());
  const auto wanted = static_cast<int64_t>(logit_rows.size());
  KV8_CHECK(rows > 0 && rows <= limits_.rows, "{} rows, at most {}", rows, limits_.rows);
  KV8_CHECK(wanted <= limits_.logit_rows, "{} logit rows, at most {}", wanted, limits_.logit_rows);
  KV8_RETURN_IF_ERROR(ops_.begin_step(step));
  ops_.embed(*weights_.embedding, config_.embedding_scale, residual_.first_rows(rows));
  ops_.rms_norm(residual_.first_rows(rows), *weights_.layers.front().attention_norm, config_.norm_epsilon,
                hidden_.first_rows(rows));
  for (size_t index = 0; index < weights_.layers.size(); ++index) {
    const bool last = index + 1 == weights_.layers.size();
    const ops::Vector& next_norm = last ? *weights_.final_norm : *weights_.layers[index + 1].attention_norm;
    KV8_RETURN_IF_ERROR(run_layer(index, rows, next_norm));
  }
  const ops::Activations logits = logits_.first_rows(wanted);
  if (wanted == 0) return logits;
  ops_.gather_rows(hidden_.first_rows(rows), logit_rows, head_input_.first_rows(wanted));
  ops_.linear(weights_.lm_head != nullptr ? *weights_.lm_head : *weights_.embedding,
              head_input_.first_rows(wanted), logits);
  if (config_.logit_soft_cap > 0) ops_.soft_cap(logits, config_.logit_soft_cap);
  return logits;
}

std::vector<kv_cache::CacheLayer> cache_layers(const ModelConfig& config, kv_cache::KvFormat format) {
  std::vector<kv_cache::CacheLayer> layers;
  for (const LayerConfig& layer : config.layers) {
    kv_cache::CacheLayer& one = layers.emplace_back();
    one.format = format;
    one.kv_heads = layer.kv_heads;
    one.k_dim = layer.head_dim;
    one.v_dim = layer.head_dim;
    one.window = layer.window;
  }
  return layers;
}

}  // namespace kv8::models
