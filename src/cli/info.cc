// kv8 info: what a model is and what its cache costs, without loading its weights.
#include <map>
#include <memory>

#include <fmt/ranges.h>

#include "cli/cache_cost.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "core/json.h"
#include "formats/kv_scales.h"
#include "kv_cache/cache_plan.h"
#include "models/decoder.h"

namespace kv8::cli {

namespace {

struct FormatTotal {
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
};

struct ModelInfo {
  std::string path;
  models::ModelConfig config;
  std::map<std::string, FormatTotal> weights;  // by dtype
  int64_t parameters = 0;
  int64_t weight_bytes = 0;
  std::map<std::string, kv_cache::CachePlan> plans;  // by cache format
  int64_t layers_with_scales = 0;
  bool chat_template = false;
  bool tokenizer = false;
};

Expected<ModelInfo> gather(const std::string& model) {
  ModelInfo info;
  KV8_ASSIGN_OR_RETURN(info.path, locate_model(model));
  KV8_ASSIGN_OR_RETURN(const formats::Checkpoint checkpoint, formats::Checkpoint::open(info.path));
  KV8_ASSIGN_OR_RETURN(info.config,
                       models::parse_model_config(checkpoint.config(), checkpoint.config_source()));
  for (const auto& name : checkpoint.names()) {
    const TensorView* tensor = checkpoint.find(name);
    if (tensor == nullptr) continue;
    FormatTotal& total = info.weights[std::string(to_string(tensor->dtype))];
    ++total.tensors;
    total.parameters += tensor->shape.elements();
    total.bytes += static_cast<int64_t>(tensor->bytes);
    info.parameters += tensor->shape.elements();
    info.weight_bytes += static_cast<int64_t>(tensor->bytes);
  }
  std::vector<int> kv_heads;
  for (const auto& layer : info.config.layers) kv_heads.push_back(layer.attention()->kv_heads);
  for (const auto format : {kv_cache::KvFormat::bf16, kv_cache::KvFormat::fp8}) {
    KV8_ASSIGN_OR_RETURN(info.plans[std::string(to_string(format))],
                         kv_cache::make_cache_plan(models::cache_layers(info.config, format)));
  }
  KV8_ASSIGN_OR_RETURN(const formats::KvScales scales, formats::find_kv_scales(checkpoint, kv_heads));
  for (const auto& layer : scales.layers) info.layers_with_scales += layer ? 1 : 0;
  info.chat_template = checkpoint.chat_template().has_value();
  info.tokenizer = checkpoint.is_gguf() || checkpoint.tokenizer_json_path().has_value();
  return info;
}

int64_t window_layers(const models::ModelConfig& config) {
  int64_t count = 0;
  for (const auto& layer : config.layers) count += layer.attention()->window > 0 ? 1 : 0;
  return count;
}

void print_text(const ModelInfo& info) {
  const models::ModelConfig& config = info.config;
  const models::AttentionConfig& attention = *config.layers.front().attention();
  std::vector<std::string> formats;
  for (const auto& [name, total] : info.weights) {
    formats.push_back(fmt::format("{} {} ({} tensors)", name, human_bytes(static_cast<double>(total.bytes)),
                                  total.tensors));
  }
  const auto per_token = [&](const char* format) {
    const kv_cache::CachePlan& plan = info.plans.at(format);
    return fmt::format("{}; {} for {} tokens", cache_text(plan),
                       human_bytes(static_cast<double>(plan.sequence_bytes(config.max_positions, 1))),
                       with_thousands(config.max_positions));
  };
  std::vector<std::pair<std::string, std::string>> fields = {
      {"family", fmt::format("{} ({})", config.family, config.model_type)},
      {"parameters", fmt::format("{} in {}", with_thousands(info.parameters),
                                 human_bytes(static_cast<double>(info.weight_bytes)))},
      {"weights", fmt::format("{}", fmt::join(formats, ", "))},
      {"layers", fmt::format("{}, hidden {}, MLP {}", config.layers.size(), config.hidden_size,
                             config.layers.front().dense()->intermediate_size)},
      {"attention", fmt::format("{} query and {} KV heads of {}", attention.q_heads, attention.kv_heads,
                                attention.head_dim)},
      {"RoPE", config.rope_description},
      {"vocabulary", with_thousands(config.vocab_size)},
      {"context", fmt::format("{} tokens", with_thousands(config.max_positions))},
      {"cache, fp8", per_token("fp8")},
      {"cache, bf16", per_token("bf16")},
      {"KV scales", info.layers_with_scales > 0
                        ? fmt::format("for {} of {} layers", info.layers_with_scales, config.layers.size())
                        : "none (1.0 is used)"},
      {"tokenizer", info.tokenizer ? "yes" : "no"},
      {"chat template", info.chat_template ? "yes" : "no"},
  };
  if (const int64_t windows = window_layers(config); windows > 0) {
    int64_t window = 0;
    for (const auto& one : config.layers) window = std::max(window, one.attention()->window);
    fields.insert(fields.begin() + 5, {"windows", fmt::format("{} of {} layers see {} tokens", windows,
                                                              config.layers.size(), window)});
  }
  print_fields(info.path, fields);
}

void print_json(const ModelInfo& info) {
  const models::ModelConfig& config = info.config;
  Json weights = Json::object();
  for (const auto& [name, total] : info.weights) {
    weights[name] = {{"tensors", total.tensors}, {"parameters", total.parameters}, {"bytes", total.bytes}};
  }
  Json layers = Json::array();
  for (const auto& layer : config.layers) {
    layers.push_back({{"q_heads", layer.attention()->q_heads},
                      {"kv_heads", layer.attention()->kv_heads},
                      {"head_dim", layer.attention()->head_dim},
                      {"intermediate_size", layer.dense()->intermediate_size},
                      {"window", layer.attention()->window}});
  }
  Json cache = Json::object();
  for (const auto& [name, plan] : info.plans) {
    cache[name] = cache_json(plan);
    cache[name]["scale_bytes"] = plan.scale_bytes();
    cache[name]["bytes_at_full_context"] = plan.sequence_bytes(config.max_positions, 1);
  }
  const Json json = {{"path", info.path},
                     {"family", config.family},
                     {"model_type", config.model_type},
                     {"parameters", info.parameters},
                     {"weight_bytes", info.weight_bytes},
                     {"weights", weights},
                     {"hidden_size", config.hidden_size},
                     {"vocab_size", config.vocab_size},
                     {"max_positions", config.max_positions},
                     {"rope", config.rope_description},
                     {"layers", layers},
                     {"cache", cache},
                     {"layers_with_kv_scales", info.layers_with_scales},
                     {"tokenizer", info.tokenizer},
                     {"chat_template", info.chat_template}};
  print_output("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void add_info(CLI::App& app, Selected& selected) {
  CLI::App* command =
      app.add_subcommand("info", "Describe a model: sizes, weights, cache bytes by format, scales");
  command->footer("Example:\n  kv8 info smollm2-135m");
  auto model = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  add_model_argument(*command, *model);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([model, json, &selected] {
    selected = [model, json] {
      const auto info = gather(*model);
      if (!info) return report(info.error());
      if (*json) {
        print_json(*info);
      } else {
        print_text(*info);
      }
      return static_cast<int>(exit_ok);
    };
  });
}

}  // namespace kv8::cli
