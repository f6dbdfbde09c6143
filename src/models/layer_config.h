// One layer as data: a mixer (what lets tokens see each other) and a feed-forward (what each token does
// alone). A kind is a plain struct, an alternative of the variant, and a file of models/layers/ with its
// weights and its forward. Nothing else knows the kinds.
#pragma once

#include <cstdint>
#include <variant>

#include "ops/activations.h"

namespace kv8::models {

// Attention over keys and values of its own.
struct AttentionConfig {
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // 0: full attention
  int rope = 0;        // index into ModelConfig::ropes
  float softmax_scale = 0.0F;
  float logit_soft_cap = 0.0F;  // 0: none
  bool qkv_bias = false;
  bool output_bias = false;
};

// down(activation(gate x) * up x)
struct DenseConfig {
  int64_t intermediate_size = 0;
  ops::Activation activation = ops::Activation::silu;
  bool bias = false;
};

using MixerConfig = std::variant<AttentionConfig>;
using FeedForwardConfig = std::variant<DenseConfig>;

struct LayerConfig {
  MixerConfig mixer;
  FeedForwardConfig feed_forward;

  // Null where the layer's mixer (feed-forward) is of another kind.
  const AttentionConfig* attention() const { return std::get_if<AttentionConfig>(&mixer); }
  const DenseConfig* dense() const { return std::get_if<DenseConfig>(&feed_forward); }
};

}  // namespace kv8::models
