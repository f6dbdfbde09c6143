#include "models/layers/dense.h"

#include <array>

#include "models/model_config.h"

namespace kv8::models {

Expected<DenseWeights> load_dense_weights(TensorSource& source, const std::string& prefix,
                                          const LayerTensorNames& names, const DenseConfig& dense,
                                          const ModelConfig& config) {
  const auto full = [&](std::string_view suffix) { return fmt::format("{}{}", prefix, suffix); };
  DenseWeights weights;
  std::array<ops::MatrixPart, 2> gate_up;
  KV8_ASSIGN_OR_RETURN(
      gate_up[0], source.part(full(names.gate), dense.intermediate_size, config.hidden_size, dense.bias));
  KV8_ASSIGN_OR_RETURN(gate_up[1],
                       source.part(full(names.up), dense.intermediate_size, config.hidden_size, dense.bias));
  KV8_ASSIGN_OR_RETURN(weights.gate_up, source.ops().load_matrix(gate_up));
  KV8_ASSIGN_OR_RETURN(
      weights.down, source.matrix(full(names.down), config.hidden_size, dense.intermediate_size, dense.bias));
  return weights;
}

Status run_dense(ops::Ops& ops, const DenseConfig& dense, const DenseWeights& weights,
                 const DenseBuffers& buffers, const ops::Activations& hidden, const ops::Activations& out) {
  const ops::Activations gate_up = buffers.gate_up.view(hidden.rows, 2 * dense.intermediate_size);
  const ops::Activations activated = buffers.activated.view(hidden.rows, dense.intermediate_size);
  ops.linear(*weights.gate_up, hidden, gate_up);
  ops.gated_activation(dense.activation, gate_up, activated);
  ops.linear(*weights.down, activated, out);
  return {};
}

}  // namespace kv8::models
