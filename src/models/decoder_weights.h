// The weights of a decoder, found in a checkpoint by the family's table of names and handed to a backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/error.h"
#include "formats/checkpoint.h"
#include "models/layers/attention.h"
#include "models/layers/dense.h"
#include "models/model_config.h"
#include "ops/ops.h"

namespace kv8::models {

// The weights of a layer's mixer and feed-forward, of the kinds that its LayerConfig names.
using MixerWeights = std::variant<AttentionWeights>;
using FeedForwardWeights = std::variant<DenseWeights>;

struct LayerWeights {
  std::unique_ptr<ops::Vector> attention_norm;       // [hidden]
  std::unique_ptr<ops::Vector> post_attention_norm;  // [hidden], or null
  std::unique_ptr<ops::Vector> mlp_norm;             // [hidden]
  std::unique_ptr<ops::Vector> post_mlp_norm;        // [hidden], or null
  MixerWeights mixer;
  FeedForwardWeights feed_forward;
};

struct DecoderWeights {
  std::unique_ptr<ops::Matrix> embedding;  // [vocab, hidden]
  std::unique_ptr<ops::Matrix> lm_head;    // [vocab, hidden]; null where the embedding serves
  std::unique_ptr<ops::Vector> final_norm;
  std::vector<LayerWeights> layers;
  std::vector<float> rope_frequency_divisors;  // [head_dim / 2] where the checkpoint has them, else empty
};

// Called with the layers done so far, of all of them; returning false cancels.
using LoadProgress = std::function<bool(int64_t done, int64_t total)>;

// Every shape is checked against the config, and every tensor of the checkpoint must have its place in it
// (models/leftovers.h has the exceptions). Errors name file, tensor and shape. The checkpoint must outlive
// the weights: a backend may read them where they lie. ErrorCode::cancelled when `progress` says so.
Expected<DecoderWeights> load_decoder_weights(const formats::Checkpoint& checkpoint,
                                              const ModelConfig& config, ops::Ops& ops,
                                              const LoadProgress& progress = {});

}  // namespace kv8::models
