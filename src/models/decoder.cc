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
    const AttentionConfig& layer = std::get<AttentionConfig>(config_.layers[index].mixer);
    const AttentionWeights& weights = std::get<AttentionWeights>(weights_.layers[index].mixer);
    ops::AttentionLayer& attention = attention_.emplace_back();
    attention.cache_layer = static_cast<int>(index);
    attention.q_heads = layer.q_heads;
    attention.kv_heads = layer.kv_heads;
    attention.head_dim = layer.head_dim;
    attention.rope = &config_.ropes[static_cast<size_t>(layer.rope)];
    attention.q_norm = weights.q_norm.get();
    attention.k_norm = weights.k_norm.get();
    attention.norm_epsilon = config_.norm_epsilon;
    attention.softmax_scale = layer.softmax_scale;
    attention.logit_soft_cap = layer.logit_soft_cap;
    attention.window = layer.window;
  }
}

Status Decoder::allocate() {
  int64_t qkv = 0;
  int64_t q = 0;
  int64_t intermediate = 0;
  for (const LayerConfig& layer : config_.layers) {
    if (const AttentionConfig* attention = layer.attention()) {
      qkv = std::max(qkv, qkv_cols(*attention));
      q = std::max(q, q_cols(*attention));
    }
    if (const DenseConfig* dense = layer.dense())
      intermediate = std::max(intermediate, dense->intermediate_size);
  }
  const struct {
    ops::Activations& activations;
    int64_t rows;
    int64_t cols;
  } all[] = {
      {residual_, limits_.rows, config_.hidden_size},
      {hidden_, limits_.rows, config_.hidden_size},
      {branch_, limits_.rows, config_.hidden_size},
      {attention_buffers_.qkv, limits_.rows, qkv},
      {attention_buffers_.q, limits_.rows, q},
      {attention_buffers_.attended, limits_.rows, q},
      {dense_buffers_.gate_up, limits_.rows, 2 * intermediate},
      {dense_buffers_.activated, limits_.rows, intermediate},
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
    for (const size_t part :
         {std::visit([](const auto& weights) { return weights.bytes(); }, layer.mixer),
          std::visit([](const auto& weights) { return weights.bytes(); }, layer.feed_forward)}) {
      bytes += part;
    }
  }
  return bytes;
}

// hidden_ comes in normalised and leaves normalised for `next_norm`'s layer.
Status Decoder::run_layer(size_t index, int64_t rows, const ops::Vector& next_norm) {
  const LayerConfig& layer = config_.layers[index];
  const LayerWeights& weights = weights_.layers[index];
  const ops::Activations residual = residual_.first_rows(rows);
  const ops::Activations hidden = hidden_.first_rows(rows);
  const ops::Activations branch = branch_.first_rows(rows);
  KV8_RETURN_IF_ERROR(std::visit(
      [&](const AttentionConfig& config) {
        return run_attention(ops_, config, std::get<AttentionWeights>(weights.mixer), attention_[index],
                             attention_buffers_, hidden, branch);
      },
      layer.mixer));
  ops_.add_rms_norm(residual, branch, weights.post_attention_norm.get(), *weights.mlp_norm,
                    config_.norm_epsilon, hidden);
  KV8_RETURN_IF_ERROR(std::visit(
      [&](const DenseConfig& config) {
        return run_dense(ops_, config, std::get<DenseWeights>(weights.feed_forward), dense_buffers_, hidden,
                         branch);
      },
      layer.feed_forward));
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
    const AttentionConfig& attention = std::get<AttentionConfig>(layer.mixer);
    kv_cache::CacheLayer& one = layers.emplace_back();
    one.format = format;
    one.kv_heads = attention.kv_heads;
    one.k_dim = attention.head_dim;
    one.v_dim = attention.head_dim;
    one.window = attention.window;
  }
  return layers;
}

}  // namespace kv8::models
