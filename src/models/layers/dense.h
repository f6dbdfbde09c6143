// The dense feed-forward: weights and forward of a DenseConfig.
#pragma once

#include <memory>
#include <string>

#include "models/family.h"
#include "models/layer_config.h"
#include "models/tensor_source.h"

namespace kv8::models {

struct ModelConfig;

struct DenseWeights {
  std::unique_ptr<ops::Matrix> gate_up;  // [2 * intermediate, hidden]
  std::unique_ptr<ops::Matrix> down;     // [hidden, intermediate]

  size_t bytes() const { return gate_up->bytes() + down->bytes(); }
};

Expected<DenseWeights> load_dense_weights(TensorSource& source, const std::string& prefix,
                                          const LayerTensorNames& names, const DenseConfig& dense,
                                          const ModelConfig& config);

// Buffers that all dense layers share, as wide as the widest needs.
struct DenseBuffers {
  ops::Activations gate_up;
  ops::Activations activated;
};

Status run_dense(ops::Ops& ops, const DenseConfig& dense, const DenseWeights& weights,
                 const DenseBuffers& buffers, const ops::Activations& hidden, const ops::Activations& out);

}  // namespace kv8::models
