// kv8 run: a prompt in, a streamed answer out.
#include <limits>
#include <memory>
#include <random>

#include "cli/cache_cost.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"
#include "core/json.h"
#include "engine/generate.h"

namespace kv8::cli {

namespace {

struct RunOptions {
  ModelOptions model;
  TextSource prompt;
  std::string system;
  bool raw = false;
  bool json = false;
  bool ignore_eos = false;
  int64_t max_tokens = 0;
  engine::SamplingParams sampling;
  int64_t seed = -1;
  std::vector<std::string> stop;
};

constexpr const char* kExamples =
    "Examples:\n"
    "  kv8 run smollm2-135m -p \"Explain FP8 in one sentence.\"\n"
    "  cat report.txt | kv8 run ./Qwen3-8B --system \"Summarise.\" -n 300\n"
    "  kv8 run model.gguf --raw -p \"Once upon a time\" -n 100 --temperature 0.8 --seed 7\n"
    "The answer goes to stdout, everything else to stderr. Ctrl-C ends the answer and still prints the "
    "summary.";

// timed: how many of the tokens the seconds were spent on.
std::string speed(int64_t tokens, int64_t timed, double seconds) {
  std::string text =
      fmt::format("{} token{} in {:.2f} s", with_thousands(tokens), tokens == 1 ? "" : "s", seconds);
  if (timed > 0 && seconds > 0)
    text += fmt::format(" ({:.1f} tokens/s)", static_cast<double>(timed) / seconds);
  return text;
}

// By format: as it is, and what BF16 would take.
Json cache_costs(const engine::Engine& engine, const ModelOptions& options) {
  Json costs = {{"bf16", cache_json(plan_in(engine.cache_plan(), kv_cache::KvFormat::bf16))}};
  costs[options.kv_cache_dtype] = cache_json(engine.cache_plan());
  return costs;
}

void print_summary(const engine::Engine& engine, const engine::GenerationResult& result,
                   const ModelOptions& options) {
  const auto answered = static_cast<int64_t>(result.tokens.size());
  fmt::print(stderr, "\n  prompt  {}\n",
             speed(result.prompt_tokens, result.prompt_tokens, result.prefill_seconds));
  // The first token comes out of the prefill, so the time is that of one fewer.
  fmt::print(stderr, "  answer  {}, ended by {}\n", speed(answered, answered - 1, result.decode_seconds),
             to_string(result.finish));
  fmt::print(stderr, "  cache   {}: {}; bf16: {}; scales {}\n", options.kv_cache_dtype,
             cache_text(engine.cache_plan()),
             cache_text(plan_in(engine.cache_plan(), kv_cache::KvFormat::bf16)), engine.scales_description());
  fmt::print(stderr, "  memory  {} at its peak; {}\n", human_bytes(static_cast<double>(peak_memory_bytes())),
             engine.backend());
  if (const int64_t saturated = engine.saturations(); saturated > 0) {
    fmt::print(stderr,
               "kv8: note: {} numbers were beyond what FP8 holds at these scales and were cut off: give "
               "calibrated scales "
               "(--kv-scales FILE), or keep the layers in bf16 (--kv-cache-dtype-skip-layers)\n",
               with_thousands(saturated));
  }
}

void print_json(const engine::Engine& engine, const engine::GenerationResult& result,
                const RunOptions& options, uint64_t seed) {
  const Json json = {{"text", result.text},
                     {"tokens", result.tokens},
                     {"finish_reason", to_string(result.finish)},
                     {"prompt_tokens", result.prompt_tokens},
                     {"completion_tokens", result.tokens.size()},
                     {"prefill_seconds", result.prefill_seconds},
                     {"decode_seconds", result.decode_seconds},
                     {"seed", seed},
                     {"backend", engine.backend()},
                     {"kv_cache_dtype", options.model.kv_cache_dtype},
                     {"kv_scales", engine.scales_description()},
                     {"attention_accumulate", options.model.accumulate},
                     {"cache", cache_costs(engine, options.model)},
                     {"saturations", engine.saturations()},
                     {"peak_memory_bytes", peak_memory_bytes()}};
  print_output("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

Expected<std::vector<int32_t>> encode_prompt(const engine::Engine& engine, const RunOptions& options,
                                             const std::string& text) {
  const text::Tokenizer* tokenizer = engine.tokenizer();
  if (tokenizer == nullptr) {
    return make_error(ErrorCode::not_found, "{}: no tokenizer.json, so kv8 can't read text with this model",
                      options.model.model);
  }
  const bool chat = !options.raw && engine.chat_template() != nullptr;
  if (!chat) {
    if (!options.system.empty()) {
      return make_error(ErrorCode::invalid_argument, "--system needs a chat template; {}",
                        options.raw ? "leave out --raw" : "this model has none");
    }
    return tokenizer->encode(text);
  }
  text::ChatRequest request;
  request.messages = OrderedJson::array();
  if (!options.system.empty()) request.messages.push_back({{"role", "system"}, {"content", options.system}});
  request.messages.push_back({{"role", "user"}, {"content", text}});
  request.add_generation_prompt = true;
  KV8_ASSIGN_OR_RETURN(const std::string rendered, engine.chat_template()->render(request));
  // The template writes the special tokens itself.
  return tokenizer->encode(rendered, {.add_special_tokens = false, .parse_special_tokens = true});
}

Expected<int> execute(RunOptions& options) {
  KV8_RETURN_IF_ERROR(engine::validate(options.sampling));
  KV8_ASSIGN_OR_RETURN(const std::string text, read_text_source(options.prompt));
  KV8_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> engine, load_engine(options.model));
  engine::GenerationRequest request;
  KV8_ASSIGN_OR_RETURN(request.prompt, encode_prompt(*engine, options, text));
  request.max_tokens = options.max_tokens;
  request.sampling = options.sampling;
  request.sampling.seed = options.seed >= 0 ? static_cast<uint64_t>(options.seed) : std::random_device{}();
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.cancel = &interrupt_flag();

  ProgressBar progress("reading the prompt");
  engine::GenerationHooks hooks;
  hooks.on_prefill = [&](int64_t done, int64_t total) {
    progress.update(done, total);
    if (done == total) progress.clear();
  };
  if (!options.json) {
    hooks.on_text = [](std::string_view piece) {
      write_output(piece);
      if (!flush_output()) stop_as_interrupted();  // nobody would see the rest
    };
  }
  KV8_ASSIGN_OR_RETURN(const engine::GenerationResult result, engine::generate(*engine, request, hooks));
  progress.clear();
  if (options.json) {
    print_json(*engine, result, options, request.sampling.seed);
  } else {
    print_output("\n");
    flush_output();
    print_summary(*engine, result, options.model);
  }
  return result.finish == engine::FinishReason::cancelled ? exit_interrupted : exit_ok;
}

}  // namespace

void add_run(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, streaming");
  command->footer(kExamples);
  auto options = std::make_shared<RunOptions>();
  add_model_options(*command, options->model);
  add_text_source(*command, options->prompt);
  command->add_option("--system", options->system, "System message, for models with a chat template");
  command->add_flag("--raw", options->raw, "Continue the text as it is, without the chat template");
  command
      ->add_option("-n,--max-tokens", options->max_tokens,
                   "Tokens of the answer; 0: until it ends or the context is full")
      ->check(whole_number(0));
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-sequence token");
  command->add_option("--stop", options->stop, "Text that ends the answer; may be given more than once")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "Print one JSON object at the end instead of streaming");
  const char* group = "Sampling";
  command->add_option("--temperature", options->sampling.temperature, "0: greedy")->group(group);
  command->add_option("--top-k", options->sampling.top_k, "Keep the k most probable tokens; 0: all")
      ->check(whole_number(0, std::numeric_limits<int>::max()))
      ->group(group);
  command
      ->add_option("--top-p", options->sampling.top_p, "Keep the fewest tokens whose probabilities reach p")
      ->group(group);
  command
      ->add_option("--min-p", options->sampling.min_p, "Keep tokens at least p times as probable as the best")
      ->group(group);
  command->add_option("--repetition-penalty", options->sampling.repetition_penalty, "1: off")->group(group);
  command->add_option("--seed", options->seed, "Same seed, same answer; -1: a new one each time")
      ->check(whole_number(-1))
      ->group(group);
  command->callback([options, &selected] { selected = work(options, execute); });
}

}  // namespace kv8::cli
