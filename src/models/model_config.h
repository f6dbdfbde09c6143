// A model's architecture as data: one flat struct, filled from config.json by a row of the family table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "models/layer_config.h"
#include "ops/ops.h"

namespace kv8::models {

// Where a decoder block normalises. pre: before attention and before the MLP. sandwich: after both as well
// (Gemma).
enum class NormPlacement : uint8_t { pre, sandwich };

struct ModelConfig {
  std::string model_type;  // the row of the family table
  std::string family;      // "llama", "qwen3", ...
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  float norm_epsilon = 0.0F;
  float norm_weight_offset = 0.0F;  // Gemma stores norm weights minus one
  NormPlacement norms = NormPlacement::pre;
  bool qk_norm = false;
  float embedding_scale = 1.0F;
  float logit_soft_cap = 0.0F;
  bool tied_embeddings = false;
  std::vector<int64_t> bos_ids;
  std::vector<int64_t> eos_ids;
  std::vector<LayerConfig> layers;
  std::vector<ops::Rope> ropes;
  std::string rope_description;       // "llama3, theta 500000, factor 8"
  std::string rope_frequency_tensor;  // divides the frequencies of ropes[0] (GGUF keeps llama3's scaling so);
                                      // or empty
};

// Reads a Hugging Face config, in the style of transformers 4 or 5. source names the file in messages.
// Errors: unsupported (a family or RoPE kind kv8 lacks; the message lists those it has), corrupt_data,
// not_found.
Expected<ModelConfig> parse_model_config(const Json& config, const std::string& source);

// The model types of the family table, for help and messages.
std::vector<std::string> supported_model_types();

}  // namespace kv8::models
