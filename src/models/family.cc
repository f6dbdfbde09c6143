#include "models/family.h"

#include <array>
#include <cmath>

#include <fmt/ranges.h>

namespace kv8::models {

namespace {

constexpr LayerTensorNames kLlamaTensors = {};

constexpr LayerTensorNames with_qk_norm(LayerTensorNames names) {
  names.q_norm = "self_attn.q_norm";
  names.k_norm = "self_attn.k_norm";
  return names;
}

constexpr LayerTensorNames kGemmaTensors = [] {
  LayerTensorNames names = with_qk_norm({});
  names.post_attention_norm = "post_attention_layernorm";
  names.mlp_norm = "pre_feedforward_layernorm";
  names.post_mlp_norm = "post_feedforward_layernorm";
  return names;
}();

constexpr BiasRule kAttentionBias = {false, "attention_bias"};
constexpr BiasRules kNoBiases = {};
constexpr BiasRules kAttentionBiases = {kAttentionBias, kAttentionBias, {}};
constexpr BiasRules kLlamaBiases = {kAttentionBias, kAttentionBias, {false, "mlp_bias"}};
constexpr BiasRules kQwen2Biases = {{true, {}}, {}, {}};

constexpr Leftover kVisionTower[] = {
    {Leftover::Where::begin, "vision_tower."},
    {Leftover::Where::begin, "model.vision_tower."},
    {Leftover::Where::begin, "multi_modal_projector."},
    {Leftover::Where::begin, "model.multi_modal_projector."},
};

Status refine_llama(const JsonObject& /*config*/, ModelConfig& /*model*/) {
  return {};
}

Status refine_qwen3(const JsonObject& /*config*/, ModelConfig& model) {
  model.qk_norm = true;
  return {};
}

Status refine_gemma3(const JsonObject& config, ModelConfig& model) {
  model.qk_norm = true;
  model.norms = NormPlacement::sandwich;
  KV8_ASSIGN_OR_RETURN(const double offset, config.number_or("kv8_norm_weight_offset", 1.0));
  model.norm_weight_offset = static_cast<float>(offset);
  model.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(model.hidden_size)));
  KV8_ASSIGN_OR_RETURN(const double scalar, config.number_or("query_pre_attn_scalar", 256.0));
  if (scalar <= 0) {
    return make_error(ErrorCode::corrupt_data, "{}: expected a positive number",
                      config.field("query_pre_attn_scalar"));
  }
  for (LayerConfig& layer : model.layers) {
    std::get<AttentionConfig>(layer.mixer).softmax_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  }
  return {};
}

constexpr std::array<Family, 6> kFamilies = {{
    {"llama", "llama", kLlamaTensors, kLlamaBiases, {}, refine_llama},
    {"mistral", "llama", kLlamaTensors, kNoBiases, {}, refine_llama},
    {"qwen2", "qwen2", kLlamaTensors, kQwen2Biases, {}, refine_llama},
    {"qwen3", "qwen3", with_qk_norm({}), kAttentionBiases, {}, refine_qwen3},
    {"gemma3_text", "gemma3", kGemmaTensors, kAttentionBiases, {}, refine_gemma3},
    // The multimodal wrapper: its text_config.
    {"gemma3", "gemma3", kGemmaTensors, kAttentionBiases, kVisionTower, refine_gemma3},
}};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

std::vector<std::string> supported_model_types() {
  std::vector<std::string> types;
  for (const Family& family : kFamilies) types.emplace_back(family.model_type);
  return types;
}

Expected<const Family*> find_family(std::string_view model_type, const std::string& source) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return make_error(ErrorCode::unsupported, "{}: model_type: '{}' is not a family kv8 knows; it has {}",
                    source, model_type, fmt::join(supported_model_types(), ", "));
}

}  // namespace kv8::models
