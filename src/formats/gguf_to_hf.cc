#include "formats/gguf_to_hf.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <fmt/ranges.h>

namespace kv8::formats {

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// A tensor's name without ".weight" or ".bias"; {} stands for the layer's number.
struct TensorName {
  std::string_view gguf;
  std::string_view hf;
};

constexpr TensorName kDenseNames[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {"blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    {"blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    {"blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    {"blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {"blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {"blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
    {"blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {"blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

constexpr TensorName kPreNormNames[] = {
    {"blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
};

constexpr TensorName kGemmaNormNames[] = {
    {"blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};

using AddFields = Status (*)(const Gguf&, Json& config);
Status add_gemma3_fields(const Gguf& gguf, Json& config);

struct Architecture {
  std::string_view gguf;        // general.architecture, and the prefix of its keys
  std::string_view model_type;  // as in config.json
  std::string_view hf_class;
  std::string_view activation_key;
  std::string_view activation;
  std::span<const TensorName> names;  // beside kDenseNames
  bool rope_interleaved;
  std::optional<int> norm_weight_offset;
  AddFields add_fields;  // what else the family needs, or nullptr
};

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", "LlamaForCausalLM", "hidden_act", "silu", kPreNormNames, true, std::nullopt, nullptr},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", "hidden_act", "silu", kPreNormNames, false, std::nullopt, nullptr},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", "hidden_act", "silu", kPreNormNames, false, std::nullopt, nullptr},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", "hidden_activation", "gelu_pytorch_tanh", kGemmaNormNames,
     false, 0, add_gemma3_fields},
};

const Architecture* find_architecture(std::string_view name) {
  const auto* it = std::ranges::find(kArchitectures, name, &Architecture::gguf);
  return it == std::end(kArchitectures) ? nullptr : it;
}

// "llama.block_count" and the like, read under the architecture's prefix.
class Section {
 public:
  Section(const Gguf& gguf, std::string_view prefix) : gguf_(gguf), prefix_(prefix) {}

  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }
  bool has(std::string_view name) const { return gguf_.has(key(name)); }

  Expected<int64_t> count(std::string_view name) const { return gguf_.integer(key(name), 1, kMaxInt32); }
  Expected<int64_t> count_or(std::string_view name, int64_t fallback) const {
    return gguf_.integer_or(key(name), fallback, 0, kMaxInt32);
  }

  // A count that may be given layer by layer, where all layers must agree.
  Expected<int64_t> uniform_count(std::string_view name) const {
    const GgufValue* value = gguf_.find_value(key(name));
    if (value == nullptr || value->type != GgufType::array) return count(name);
    KV8_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, gguf_.integers(key(name)));
    if (counts.empty() || counts.front() < 1 || counts.front() > kMaxInt32) {
      return make_error(ErrorCode::corrupt_data, "{}: {}: expected positive integers", gguf_.path().string(),
                        key(name));
    }
    if (std::ranges::any_of(counts, [&](int64_t other) { return other != counts.front(); })) {
      return make_error(ErrorCode::unsupported, "{}: {}: layers that differ in it are not supported",
                        gguf_.path().string(), key(name));
    }
    return counts.front();
  }

  // A float32 as the number that was meant: 1e-05, not 9.999999747378752e-06.
  Expected<double> number_or(std::string_view name, double fallback) const {
    KV8_ASSIGN_OR_RETURN(const double number, gguf_.number_or(key(name), fallback));
    const GgufValue* value = gguf_.find_value(key(name));
    if (value == nullptr || value->type != GgufType::f32) return number;
    const std::string shortest = fmt::format("{}", static_cast<float>(number));
    double meant = number;
    std::from_chars(shortest.data(), shortest.data() + shortest.size(), meant);
    return meant;
  }

 private:
  const Gguf& gguf_;
  std::string_view prefix_;
};

Status refuse_what_is_not_read(const Gguf& gguf, const Section& section) {
  KV8_ASSIGN_OR_RETURN(const int64_t splits, gguf.integer_or("split.count", 1, 0, 65535));
  if (splits > 1) {
    return make_error(ErrorCode::unsupported,
                      "{}: split.count: one of {} parts; merge them first (llama-gguf-split --merge)",
                      gguf.path().string(), splits);
  }
  KV8_ASSIGN_OR_RETURN(const int64_t experts, section.count_or("expert_count", 0));
  if (experts > 0) {
    return make_error(ErrorCode::unsupported,
                      "{}: {}: mixtures of experts are not supported for this architecture",
                      gguf.path().string(), section.key("expert_count"));
  }
  return {};
}

Status add_sizes(const Gguf& gguf, const Section& section, Json& config) {
  KV8_ASSIGN_OR_RETURN(const int64_t hidden, section.count("embedding_length"));
  KV8_ASSIGN_OR_RETURN(const int64_t layers, section.count("block_count"));
  // What is sized by the number of layers is thereby sized by the file.
  if (layers > static_cast<int64_t>(gguf.names().size())) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: {} layers, but the file has {} tensors",
                      gguf.path().string(), section.key("block_count"), layers, gguf.names().size());
  }
  KV8_ASSIGN_OR_RETURN(const int64_t heads, section.uniform_count("attention.head_count"));
  int64_t kv_heads = heads;
  if (section.has("attention.head_count_kv")) {
    KV8_ASSIGN_OR_RETURN(kv_heads, section.uniform_count("attention.head_count_kv"));
  }
  int64_t head_dim = hidden / heads;
  if (section.has("attention.key_length")) {
    KV8_ASSIGN_OR_RETURN(head_dim, section.count("attention.key_length"));
  } else if (hidden % heads != 0) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: missing, and {} is not a multiple of {} heads",
                      gguf.path().string(), section.key("attention.key_length"), hidden, heads);
  }
  KV8_ASSIGN_OR_RETURN(const int64_t value_dim, section.count_or("attention.value_length", head_dim));
  if (value_dim != head_dim) {
    return make_error(ErrorCode::unsupported, "{}: {}: {}, but keys have {}; both must be equal",
                      gguf.path().string(), section.key("attention.value_length"), value_dim, head_dim);
  }
  KV8_ASSIGN_OR_RETURN(const int64_t rotated, section.count_or("rope.dimension_count", head_dim));
  KV8_ASSIGN_OR_RETURN(config["intermediate_size"], section.uniform_count("feed_forward_length"));
  KV8_ASSIGN_OR_RETURN(config["max_position_embeddings"], section.count("context_length"));
  KV8_ASSIGN_OR_RETURN(config["rms_norm_eps"], section.number_or("attention.layer_norm_rms_epsilon", 1e-5));
  config["hidden_size"] = hidden;
  config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = head_dim;
  if (rotated != head_dim) {
    config["partial_rotary_factor"] = static_cast<double>(rotated) / static_cast<double>(head_dim);
  }
  return {};
}

// rope_parameters of the layers with full attention.
Expected<Json> rope_parameters(const Gguf& gguf, const Section& section) {
  Json rope = {{"rope_type", "default"}};
  KV8_ASSIGN_OR_RETURN(rope["rope_theta"], section.number_or("rope.freq_base", 10000.0));
  KV8_ASSIGN_OR_RETURN(double factor, section.number_or("rope.scale_linear", 1.0));  // the older spelling
  KV8_ASSIGN_OR_RETURN(factor, section.number_or("rope.scaling.factor", factor));
  const bool scales = factor != 0.0 && factor != 1.0;
  const std::string type_key = section.key("rope.scaling.type");
  KV8_ASSIGN_OR_RETURN(const std::string_view type, gguf.string_or(type_key, scales ? "linear" : "none"));
  if (type == "none" || (type == "linear" && !scales)) return rope;
  if (type != "linear" && type != "yarn") {
    return make_error(ErrorCode::unsupported, "{}: {}: '{}' is none of none, linear, yarn",
                      gguf.path().string(), type_key, type);
  }
  rope["rope_type"] = type;
  rope["factor"] = factor;
  if (type == "linear") return rope;
  constexpr std::pair<std::string_view, std::string_view> kYarnNumbers[] = {
      {"rope.scaling.yarn_attn_factor", "attention_factor"},
      {"rope.scaling.yarn_beta_fast", "beta_fast"},
      {"rope.scaling.yarn_beta_slow", "beta_slow"},
  };
  for (const auto& [name, field] : kYarnNumbers) {
    if (!section.has(name)) continue;
    KV8_ASSIGN_OR_RETURN(rope[std::string(field)], section.number_or(name, 0.0));
  }
  KV8_ASSIGN_OR_RETURN(rope["original_max_position_embeddings"],
                       section.count("rope.scaling.original_context_length"));
  return rope;
}

Status add_vocabulary(const Gguf& gguf, const Section& section, Json& config) {
  // The embedding says how many tokens there really are: converters cut rows that no token has.
  if (const Shape* embedding = gguf.shape("token_embd.weight");
      embedding != nullptr && embedding->rank() == 2) {
    config["vocab_size"] = (*embedding)[0];
  } else {
    KV8_ASSIGN_OR_RETURN(config["vocab_size"], section.count("vocab_size"));
  }
  const int64_t last_token = config["vocab_size"].get<int64_t>() - 1;
  const auto token = [&](std::string_view key) { return gguf.integer_or(key, -1, -1, last_token); };
  KV8_ASSIGN_OR_RETURN(const int64_t bos, token("tokenizer.ggml.bos_token_id"));
  KV8_ASSIGN_OR_RETURN(const int64_t pad, token("tokenizer.ggml.padding_token_id"));
  if (bos >= 0) config["bos_token_id"] = bos;
  if (pad >= 0) config["pad_token_id"] = pad;
  // A chat ends with the end of a turn as well as with the end of the text.
  std::vector<int64_t> ends;
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    KV8_ASSIGN_OR_RETURN(const int64_t end, token(key));
    if (end >= 0 && std::ranges::find(ends, end) == ends.end()) ends.push_back(end);
  }
  if (ends.size() == 1) config["eos_token_id"] = ends.front();
  if (ends.size() > 1) config["eos_token_id"] = ends;
  return {};
}

Status add_soft_caps(const Section& section, Json& config) {
  for (const std::string_view name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (!section.has(name)) continue;
    KV8_ASSIGN_OR_RETURN(config[std::string(name)], section.number_or(name, 0.0));
  }
  return {};
}

// Which layers have a window: a list of booleans, or a number n: all but every n-th.
Expected<std::vector<std::string>> gemma3_layer_types(const Gguf& gguf, const Section& section,
                                                      int64_t layers) {
  const std::string key = section.key("attention.sliding_window_pattern");
  const GgufValue* value = gguf.find_value(key);
  std::vector<std::string> types;
  if (value != nullptr && value->type == GgufType::array) {
    KV8_ASSIGN_OR_RETURN(const std::vector<int64_t> windows, gguf.integers(key));
    if (static_cast<int64_t>(windows.size()) < layers) {
      return make_error(ErrorCode::corrupt_data, "{}: {}: {} entries for {} layers", gguf.path().string(),
                        key, windows.size(), layers);
    }
    for (int64_t layer = 0; layer < layers; ++layer) {
      types.emplace_back(windows[static_cast<size_t>(layer)] != 0 ? "sliding_attention" : "full_attention");
    }
    return types;
  }
  constexpr int64_t kGemma3Pattern = 6;
  KV8_ASSIGN_OR_RETURN(const int64_t pattern, gguf.integer_or(key, kGemma3Pattern, 1, kMaxInt32));
  for (int64_t layer = 0; layer < layers; ++layer) {
    types.emplace_back((layer + 1) % pattern != 0 ? "sliding_attention" : "full_attention");
  }
  return types;
}

Status add_gemma3_fields(const Gguf& gguf, Json& config) {
  const Section section(gguf, "gemma3");
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  KV8_ASSIGN_OR_RETURN(const double local_theta, section.number_or("rope.freq_base_swa", 10000.0));
  // The scaling of RoPE is the full layers' alone.
  config["rope_parameters"] = {
      {"full_attention", config["rope_parameters"]},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local_theta}}},
  };
  KV8_ASSIGN_OR_RETURN(const int64_t window, section.count_or("attention.sliding_window", 0));
  if (window > 0) {
    config["sliding_window"] = window;
    KV8_ASSIGN_OR_RETURN(config["layer_types"], gemma3_layer_types(gguf, section, layers));
  } else {
    config["layer_types"] = std::vector<std::string>(static_cast<size_t>(layers), "full_attention");
  }
  // GGUF doesn't carry the scale of the scores. It is head_dim everywhere but in the 27B, which has 62
  // layers.
  constexpr int64_t kLayersOf27B = 62;
  config["query_pre_attn_scalar"] = layers == kLayersOf27B ? config["hidden_size"].get<int64_t>() /
                                                                 config["num_attention_heads"].get<int64_t>()
                                                           : config["head_dim"].get<int64_t>();
  return {};
}

struct SplitName {
  std::string stem;  // with {} for the layer's number, without the suffix
  std::string_view layer;
  std::string_view suffix;  // ".weight", ".bias"
};

SplitName split_name(std::string_view name) {
  SplitName split;
  const size_t dot = name.rfind('.');
  if (dot != std::string_view::npos) {
    split.suffix = name.substr(dot);
    name = name.substr(0, dot);
  }
  constexpr std::string_view kLayerPrefix = "blk.";
  if (name.starts_with(kLayerPrefix)) {
    const std::string_view rest = name.substr(kLayerPrefix.size());
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    split.layer = rest.substr(0, digits);
    split.stem = fmt::format("{}{{}}{}", kLayerPrefix, rest.substr(digits));
  } else {
    split.stem = name;
  }
  return split;
}

}  // namespace

std::vector<std::string_view> gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) names.push_back(architecture.gguf);
  return names;
}

Expected<Json> hf_config_from_gguf(const Gguf& gguf) {
  KV8_ASSIGN_OR_RETURN(const std::string_view name, gguf.string("general.architecture"));
  const Architecture* architecture = find_architecture(name);
  if (architecture == nullptr) {
    return make_error(ErrorCode::unsupported,
                      "{}: general.architecture: '{}' is not supported; these are: {}", gguf.path().string(),
                      name, fmt::join(gguf_architectures(), ", "));
  }
  const Section section(gguf, architecture->gguf);
  KV8_RETURN_IF_ERROR(refuse_what_is_not_read(gguf, section));
  Json config = {
      {"model_type", architecture->model_type},
      {"architectures", {architecture->hf_class}},
      {"tie_word_embeddings", !gguf.has_tensor("output.weight")},
      {"attention_bias", gguf.has_tensor("blk.0.attn_q.bias")},
      {"kv8_attention_output_bias", gguf.has_tensor("blk.0.attn_output.bias")},
      {"mlp_bias", gguf.has_tensor("blk.0.ffn_gate.bias")},
      {"kv8_rope_interleaved", architecture->rope_interleaved},
  };
  config[std::string(architecture->activation_key)] = architecture->activation;
  if (architecture->norm_weight_offset) config["kv8_norm_weight_offset"] = *architecture->norm_weight_offset;
  if (gguf.has_tensor("rope_freqs.weight")) config["kv8_rope_freq_factors"] = "rope_freqs.weight";
  KV8_RETURN_IF_ERROR(add_sizes(gguf, section, config));
  KV8_ASSIGN_OR_RETURN(config["rope_parameters"], rope_parameters(gguf, section));
  KV8_RETURN_IF_ERROR(add_vocabulary(gguf, section, config));
  KV8_RETURN_IF_ERROR(add_soft_caps(section, config));
  if (architecture->add_fields != nullptr) KV8_RETURN_IF_ERROR(architecture->add_fields(gguf, config));
  return config;
}

std::string hf_name_from_gguf(std::string_view architecture, std::string_view name) {
  const Architecture* row = find_architecture(architecture);
  if (row == nullptr) return std::string(name);
  const SplitName split = split_name(name);
  for (const std::span<const TensorName> table : {std::span<const TensorName>(kDenseNames), row->names}) {
    const auto it = std::ranges::find(table, split.stem, &TensorName::gguf);
    if (it == table.end()) continue;
    std::string hf(it->hf);
    if (const size_t layer = hf.find("{}"); layer != std::string::npos) hf.replace(layer, 2, split.layer);
    return hf + std::string(split.suffix);
  }
  return std::string(name);
}

}  // namespace kv8::formats
