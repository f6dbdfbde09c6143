// RoPE's inverse frequencies for every kind of scaling, from the parameters of a config.
#pragma once

#include <string>

#include "core/error.h"
#include "core/json.h"
#include "ops/ops.h"

namespace kv8::models {

struct RopeResult {
  ops::Rope rope;
  std::string description;
};

// parameters: an object in the style of transformers 5 (rope_type, rope_theta, factor, ...); the older key
// `type` is understood too. theta_fallback is used if it has no rope_theta. Kinds: default, linear, llama3,
// yarn. max_positions: the config's max_position_embeddings, YaRN's original length where it names none.
// Formulas: transformers 5, modeling_rope_utils.py; YaRN is Peng et al. 2023 (arXiv 2309.00071).
Expected<RopeResult> make_rope(const JsonObject& parameters, int head_dim, double theta_fallback,
                               double partial_rotary_factor, int64_t max_positions);

}  // namespace kv8::models
