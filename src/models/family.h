// The family table: what a model_type means, as data. A new dense family is a row here.
#pragma once

#include <span>
#include <string_view>

#include "core/json.h"
#include "models/leftovers.h"
#include "models/model_config.h"

namespace kv8::models {

// Where each tensor of a layer lies in a checkpoint, below "model.layers.N.". Empty: the family has none.
struct LayerTensorNames {
  std::string_view attention_norm = "input_layernorm";
  std::string_view post_attention_norm;
  std::string_view mlp_norm = "post_attention_layernorm";
  std::string_view post_mlp_norm;
  std::string_view q = "self_attn.q_proj";
  std::string_view k = "self_attn.k_proj";
  std::string_view v = "self_attn.v_proj";
  std::string_view o = "self_attn.o_proj";
  std::string_view q_norm;
  std::string_view k_norm;
  std::string_view gate = "mlp.gate_proj";
  std::string_view up = "mlp.up_proj";
  std::string_view down = "mlp.down_proj";
};

// Whether a product has a bias: as `key` of the config says, where the rule and the config have it, else
// `fallback`. A bias that is due must be there; one that isn't due and is there is an error too. A GGUF has
// its own key for the last product of attention (formats/gguf_to_hf.h), which speaks before these.
struct BiasRule {
  bool fallback = false;
  std::string_view key;
};

struct BiasRules {
  BiasRule qkv;
  BiasRule o;
  BiasRule mlp;
};

struct Family {
  std::string_view model_type;  // as config.json spells it
  std::string_view name;
  LayerTensorNames tensors;
  BiasRules biases;
  std::span<const Leftover> leftovers;  // beside those of any model
  // Sets what the common fields of the config don't say. Called after they are read.
  Status (*refine)(const JsonObject& config, ModelConfig& model);
};

std::span<const Family> families();

// not_found lists the model types of the table.
Expected<const Family*> find_family(std::string_view model_type, const std::string& source);

}  // namespace kv8::models
