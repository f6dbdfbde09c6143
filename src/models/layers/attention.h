// The attention mixer: weights and forward of an AttentionConfig.
#pragma once

#include <memory>
#include <string>

#include "models/family.h"
#include "models/layer_config.h"
#include "models/tensor_source.h"

namespace kv8::models {

struct ModelConfig;

struct AttentionWeights {
  std::unique_ptr<ops::Vector> q_norm;  // [head_dim], or null
  std::unique_ptr<ops::Vector> k_norm;  // [head_dim], or null
  std::unique_ptr<ops::Matrix> qkv;     // [(q_heads + 2 kv_heads) * head_dim, hidden]
  std::unique_ptr<ops::Matrix> o;       // [hidden, q_heads * head_dim]

  size_t bytes() const { return qkv->bytes() + o->bytes(); }
};

// prefix: "model.layers.3.".
Expected<AttentionWeights> load_attention_weights(TensorSource& source, const std::string& prefix,
                                                  const LayerTensorNames& names,
                                                  const AttentionConfig& attention,
                                                  const ModelConfig& config);

// Buffers that all attention layers share, as wide as the widest needs.
struct AttentionBuffers {
  ops::Activations qkv;
  ops::Activations q;
  ops::Activations attended;
};
int64_t q_cols(const AttentionConfig& attention);
int64_t qkv_cols(const AttentionConfig& attention);

// out = attention of `hidden` [rows, hidden], appending its keys and values to the cache.
Status run_attention(ops::Ops& ops, const AttentionConfig& attention, const AttentionWeights& weights,
                     const ops::AttentionLayer& layer, const AttentionBuffers& buffers,
                     const ops::Activations& hidden, const ops::Activations& out);

}  // namespace kv8::models
