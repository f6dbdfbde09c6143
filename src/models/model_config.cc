#include "models/model_config.h"

#include <array>
#include <cmath>
#include <limits>

#include "models/family.h"
#include "models/rope.h"

namespace kv8::models {

namespace {

// Bounds that keep every product of two sizes far inside int64, and refuse what no real model has.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxHeads = 65'536;
constexpr int64_t kMaxHeadDim = 8'192;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 40;

Expected<ops::Activation> parse_activation(const JsonObject& config) {
  KV8_ASSIGN_OR_RETURN(const std::string old_name, config.string_or("hidden_act", "silu"));
  KV8_ASSIGN_OR_RETURN(const std::string name, config.string_or("hidden_activation", old_name));
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ops::Activation::gelu_tanh;
  return make_error(ErrorCode::unsupported, "{}: activation '{}': kv8 has silu and gelu_pytorch_tanh",
                    config.field("hidden_act"), name);
}

// 0 or null: none.
Expected<float> parse_soft_cap(const JsonObject& config, const char* field) {
  KV8_ASSIGN_OR_RETURN(const double cap, config.number_or(field, 0.0));
  if (cap >= 0 && cap <= std::numeric_limits<float>::max()) return static_cast<float>(cap);
  return make_error(ErrorCode::corrupt_data, "{}: {} is no cap; expected a number > 0, or null for none",
                    config.field(field), cap);
}

// The kind of each layer: layer_types where given, else what the older keys mean.
Expected<std::vector<bool>> parse_window_layers(const JsonObject& config, size_t layers) {
  KV8_ASSIGN_OR_RETURN(const std::vector<std::string> types, config.strings_or_empty("layer_types"));
  std::vector<bool> has_window(layers, false);
  if (!types.empty()) {
    if (types.size() != layers) {
      return make_error(ErrorCode::corrupt_data, "{}: {} entries for {} layers", config.field("layer_types"),
                        types.size(), layers);
    }
    for (size_t layer = 0; layer < layers; ++layer) {
      if (types[layer] != "full_attention" && types[layer] != "sliding_attention") {
        return make_error(ErrorCode::unsupported,
                          "{}: layer {} is '{}': kv8 has full_attention and sliding_attention",
                          config.field("layer_types"), layer, types[layer]);
      }
      has_window[layer] = types[layer] == "sliding_attention";
    }
    return has_window;
  }
  // Gemma 3 before layer_types: every pattern-th layer is full.
  KV8_ASSIGN_OR_RETURN(const int64_t old_pattern,
                       config.integer_or("sliding_window_pattern", 0, 0, kMaxLayers));
  KV8_ASSIGN_OR_RETURN(int64_t pattern,
                       config.integer_or("_sliding_window_pattern", old_pattern, 0, kMaxLayers));
  KV8_ASSIGN_OR_RETURN(const std::string type, config.string_or("model_type", ""));
  if (pattern == 0 && type.starts_with("gemma3")) pattern = 6;
  if (pattern > 0) {
    for (size_t layer = 0; layer < layers; ++layer)
      has_window[layer] = (static_cast<int64_t>(layer) + 1) % pattern != 0;
    return has_window;
  }
  // Qwen: use_sliding_window with max_window_layers full layers first. Mistral: sliding_window means all
  // layers.
  KV8_ASSIGN_OR_RETURN(const bool use_window, config.boolean_or("use_sliding_window", type == "mistral"));
  KV8_ASSIGN_OR_RETURN(const int64_t full_layers, config.integer_or("max_window_layers", 0, 0, kMaxLayers));
  for (size_t layer = 0; layer < layers; ++layer)
    has_window[layer] = use_window && static_cast<int64_t>(layer) >= full_layers;
  return has_window;
}

// An object with no fields, for configs that name no RoPE parameters.
const Json& empty_object() {
  static const Json object = Json::object();
  return object;
}

// ropes[0] serves full layers, ropes[1] (where it differs) window layers.
Status parse_ropes(const JsonObject& config, int head_dim, ModelConfig& model) {
  KV8_ASSIGN_OR_RETURN(const double theta, config.number_or("rope_theta", 10'000.0));
  KV8_ASSIGN_OR_RETURN(const double partial, config.number_or("partial_rotary_factor", 1.0));
  KV8_ASSIGN_OR_RETURN(const bool interleaved, config.boolean_or("kv8_rope_interleaved", false));
  const auto add = [&](const JsonObject& parameters, double fallback_theta) -> Status {
    KV8_ASSIGN_OR_RETURN(RopeResult result,
                         make_rope(parameters, head_dim, fallback_theta, partial, model.max_positions));
    result.rope.interleaved = interleaved;
    model.rope_description += (model.ropes.empty() ? "" : "; window layers: ") + result.description;
    model.ropes.push_back(std::move(result.rope));
    return {};
  };
  KV8_ASSIGN_OR_RETURN(const JsonObject none,
                       JsonObject::from(empty_object(), config.source(), "rope_parameters"));
  std::string_view key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) {
    KV8_RETURN_IF_ERROR(add(none, theta));
  } else {
    KV8_ASSIGN_OR_RETURN(const JsonObject parameters, config.object(key));
    if (parameters.has("full_attention") || parameters.has("sliding_attention")) {
      KV8_ASSIGN_OR_RETURN(const JsonObject full, parameters.object("full_attention"));
      KV8_RETURN_IF_ERROR(add(full, theta));
      if (parameters.has("sliding_attention")) {
        KV8_ASSIGN_OR_RETURN(const JsonObject sliding, parameters.object("sliding_attention"));
        return add(sliding, theta);
      }
      return {};
    }
    KV8_RETURN_IF_ERROR(add(parameters, theta));
  }
  // Gemma 3 in the style of transformers 4: window layers have a theta of their own and no scaling.
  if (config.has("rope_local_base_freq")) {
    KV8_ASSIGN_OR_RETURN(const double local_theta, config.number("rope_local_base_freq"));
    return add(none, local_theta);
  }
  return {};
}

struct Biases {
  bool qkv = false;
  bool o = false;
  bool mlp = false;
};

Expected<Biases> parse_biases(const JsonObject& config, const BiasRules& rules) {
  const auto read = [&config](const BiasRule& rule) -> Expected<bool> {
    return rule.key.empty() ? Expected<bool>(rule.fallback) : config.boolean_or(rule.key, rule.fallback);
  };
  Biases biases;
  KV8_ASSIGN_OR_RETURN(biases.qkv, read(rules.qkv));
  KV8_ASSIGN_OR_RETURN(biases.o, read(rules.o));
  KV8_ASSIGN_OR_RETURN(biases.o, config.boolean_or("kv8_attention_output_bias", biases.o));
  KV8_ASSIGN_OR_RETURN(biases.mlp, read(rules.mlp));
  return biases;
}

Status parse_layers(const JsonObject& config, const Family& family, ModelConfig& model) {
  KV8_ASSIGN_OR_RETURN(const int64_t count, config.integer("num_hidden_layers", 1, kMaxLayers));
  KV8_ASSIGN_OR_RETURN(const int64_t q_heads, config.integer("num_attention_heads", 1, kMaxHeads));
  KV8_ASSIGN_OR_RETURN(const int64_t kv_heads,
                       config.integer_or("num_key_value_heads", q_heads, 1, kMaxHeads));
  KV8_ASSIGN_OR_RETURN(const int64_t head_dim,
                       config.integer_or("head_dim", model.hidden_size / q_heads, 2, kMaxHeadDim));
  KV8_ASSIGN_OR_RETURN(const int64_t intermediate, config.integer("intermediate_size", 1, kMaxWidth));
  if (q_heads % kv_heads != 0) {
    return make_error(ErrorCode::corrupt_data, "{}: {} query heads are no multiple of {} KV heads",
                      config.field("num_key_value_heads"), q_heads, kv_heads);
  }
  if (head_dim % 2 != 0) {
    return make_error(ErrorCode::corrupt_data, "{}: {} is odd; RoPE turns pairs of dims",
                      config.field("head_dim"), head_dim);
  }
  KV8_ASSIGN_OR_RETURN(const std::vector<bool> has_window,
                       parse_window_layers(config, static_cast<size_t>(count)));
  KV8_ASSIGN_OR_RETURN(const int64_t window, config.integer_or("sliding_window", 0, 0, kMaxPositions));
  KV8_ASSIGN_OR_RETURN(const ops::Activation activation, parse_activation(config));
  KV8_ASSIGN_OR_RETURN(const float soft_cap, parse_soft_cap(config, "attn_logit_softcapping"));
  KV8_ASSIGN_OR_RETURN(const Biases biases, parse_biases(config, family.biases));
  KV8_RETURN_IF_ERROR(parse_ropes(config, static_cast<int>(head_dim), model));
  for (const bool windowed : has_window) {
    const AttentionConfig attention = {
        .q_heads = static_cast<int>(q_heads),
        .kv_heads = static_cast<int>(kv_heads),
        .head_dim = static_cast<int>(head_dim),
        .window = windowed ? window : 0,
        .rope = windowed && model.ropes.size() > 1 ? 1 : 0,
        .softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
        .logit_soft_cap = soft_cap,
        .qkv_bias = biases.qkv,
        .output_bias = biases.o};
    model.layers.push_back({attention, DenseConfig{intermediate, activation, biases.mlp}});
  }
  return {};
}

}  // namespace

Expected<ModelConfig> parse_model_config(const Json& json, const std::string& source) {
  KV8_ASSIGN_OR_RETURN(JsonObject config, JsonObject::from(json, source));
  KV8_ASSIGN_OR_RETURN(const std::string outer_type, config.string("model_type"));
  KV8_ASSIGN_OR_RETURN(const Family* family, find_family(outer_type, source));
  if (config.has("text_config")) {
    KV8_ASSIGN_OR_RETURN(config, config.object("text_config"));
  }
  ModelConfig model;
  model.model_type = family->model_type;
  model.family = family->name;
  KV8_ASSIGN_OR_RETURN(model.hidden_size, config.integer("hidden_size", 1, kMaxWidth));
  KV8_ASSIGN_OR_RETURN(model.vocab_size, config.integer("vocab_size", 1, kMaxWidth));
  KV8_ASSIGN_OR_RETURN(model.max_positions,
                       config.integer_or("max_position_embeddings", 2'048, 1, kMaxPositions));
  KV8_ASSIGN_OR_RETURN(const double epsilon, config.number_or("rms_norm_eps", 1e-6));
  if (epsilon < 0)
    return make_error(ErrorCode::corrupt_data, "{}: expected a number >= 0", config.field("rms_norm_eps"));
  model.norm_epsilon = static_cast<float>(epsilon);
  KV8_ASSIGN_OR_RETURN(model.tied_embeddings,
                       config.boolean_or("tie_word_embeddings", family->name == "gemma3"));
  KV8_ASSIGN_OR_RETURN(model.logit_soft_cap, parse_soft_cap(config, "final_logit_softcapping"));
  KV8_ASSIGN_OR_RETURN(model.bos_ids, config.integers_or_empty("bos_token_id", 0, model.vocab_size - 1));
  KV8_ASSIGN_OR_RETURN(model.eos_ids, config.integers_or_empty("eos_token_id", 0, model.vocab_size - 1));
  KV8_ASSIGN_OR_RETURN(model.rope_frequency_tensor, config.string_or("kv8_rope_freq_factors", ""));
  KV8_RETURN_IF_ERROR(parse_layers(config, *family, model));
  KV8_RETURN_IF_ERROR(family->refine(config, model));
  return model;
}

}  // namespace kv8::models
