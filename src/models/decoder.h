// A decoder-only transformer: every dense family is this one forward, written against the ops interface.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/decoder_weights.h"
#include "models/model_config.h"
#include "ops/ops.h"

namespace kv8::models {

struct DecoderLimits {
  int64_t rows = 0;        // tokens of one step, at most
  int64_t logit_rows = 0;  // rows of one step that want logits, at most
};

class Decoder {
 public:
  // ops and the checkpoint that `weights` came from must outlive the decoder.
  static Expected<std::unique_ptr<Decoder>> create(ModelConfig config, DecoderWeights weights, ops::Ops& ops,
                                                   const DecoderLimits& limits);

  const ModelConfig& config() const { return config_; }
  const DecoderLimits& limits() const { return limits_; }
  size_t weight_bytes() const;  // read by one decode step

  // Runs one step: appends its tokens to the cache and returns the logits [logit_rows.size(), vocab] of the
  // rows asked for. They are valid until the next step. An empty logit_rows runs no head (a chunk that isn't
  // the last).
  Expected<ops::Activations> forward(const ops::Step& step, std::span<const int32_t> logit_rows);

 private:
  Decoder(ModelConfig config, DecoderWeights weights, ops::Ops& ops, const DecoderLimits& limits);
  Status allocate();
  Status run_layer(size_t index, int64_t rows, const ops::Vector& next_norm);

  ModelConfig config_;
  DecoderWeights weights_;
  ops::Ops& ops_;
  DecoderLimits limits_;
  std::vector<ops::AttentionLayer> attention_;

  // Activations, [limits.rows, ...].
  ops::Activations residual_;  // hidden
  ops::Activations hidden_;    // hidden: normalised input of the next product
  ops::Activations branch_;    // hidden: output of attention or of the MLP
  AttentionBuffers attention_buffers_;
  DenseBuffers dense_buffers_;
  ops::Activations head_input_;  // [limits.logit_rows, hidden]
  ops::Activations logits_;      // [limits.logit_rows, vocab]
};

// The cache layers that a model needs, each in `format`.
std::vector<kv_cache::CacheLayer> cache_layers(const ModelConfig& config, kv_cache::KvFormat format);

}  // namespace kv8::models
