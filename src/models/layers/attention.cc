#include "models/layers/attention.h"

#include <array>

#include "models/model_config.h"

namespace kv8::models {

int64_t q_cols(const AttentionConfig& attention) {
  return int64_t{attention.q_heads} * attention.head_dim;
}

int64_t qkv_cols(const AttentionConfig& attention) {
  return int64_t{attention.q_heads + 2 * attention.kv_heads} * attention.head_dim;
}

Expected<AttentionWeights> load_attention_weights(TensorSource& source, const std::string& prefix,
                                                  const LayerTensorNames& names,
                                                  const AttentionConfig& attention,
                                                  const ModelConfig& config) {
  const auto full = [&](std::string_view suffix) { return fmt::format("{}{}", prefix, suffix); };
  const int64_t q_rows = q_cols(attention);
  const int64_t kv_rows = int64_t{attention.kv_heads} * attention.head_dim;
  AttentionWeights weights;
  KV8_ASSIGN_OR_RETURN(weights.q_norm,
                       source.norm(prefix, names.q_norm, attention.head_dim, config.norm_weight_offset));
  KV8_ASSIGN_OR_RETURN(weights.k_norm,
                       source.norm(prefix, names.k_norm, attention.head_dim, config.norm_weight_offset));
  std::array<ops::MatrixPart, 3> qkv;
  KV8_ASSIGN_OR_RETURN(qkv[0], source.part(full(names.q), q_rows, config.hidden_size, attention.qkv_bias));
  KV8_ASSIGN_OR_RETURN(qkv[1], source.part(full(names.k), kv_rows, config.hidden_size, attention.qkv_bias));
  KV8_ASSIGN_OR_RETURN(qkv[2], source.part(full(names.v), kv_rows, config.hidden_size, attention.qkv_bias));
  KV8_ASSIGN_OR_RETURN(weights.qkv, source.ops().load_matrix(qkv));
  KV8_ASSIGN_OR_RETURN(weights.o,
                       source.matrix(full(names.o), config.hidden_size, q_rows, attention.output_bias));
  return weights;
}

Status run_attention(ops::Ops& ops, const AttentionConfig& attention, const AttentionWeights& weights,
                     const ops::AttentionLayer& layer, const AttentionBuffers& buffers,
                     const ops::Activations& hidden, const ops::Activations& out) {
  const ops::Activations qkv = buffers.qkv.view(hidden.rows, qkv_cols(attention));
  const ops::Activations q = buffers.q.view(hidden.rows, q_cols(attention));
  const ops::Activations attended = buffers.attended.view(hidden.rows, q_cols(attention));
  ops.linear(*weights.qkv, hidden, qkv);
  KV8_RETURN_IF_ERROR(ops.rope_append_kv(layer, qkv, q));
  KV8_RETURN_IF_ERROR(ops.paged_attention(layer, q, attended));
  ops.linear(*weights.o, attended, out);
  return {};
}

}  // namespace kv8::models
