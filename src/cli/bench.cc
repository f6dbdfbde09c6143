// kv8 bench: measurements of speed on this machine. One sub-command per question.
#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>

#include <fmt/ranges.h>

#include "bench/engine_subject.h"
#include "bench/latency_report.h"
#include "bench/prompts.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

namespace kv8::cli {

namespace {

struct LatencyCommand {
  ModelOptions model;
  std::vector<std::string> caches;
  bench::LatencyOptions options;
  std::string command;
  std::string html;
  bool json = false;
};

constexpr const char* kLatencyFooter =
    "Runs one sequence at a time, with prompts of random tokens, and fits what it measures, L being the "
    "tokens of "
    "the prompt:\n"
    "  TTFT  time until the first token; a * L^2 + b * L + c: a is attention's work, b the weights', c what "
    "a step "
    "costs anyway\n"
    "  ITL   time from token to token; slope * L + intercept: the slope is the cache that is read, the "
    "intercept the "
    "weights\n"
    "The caches take turns in one process, so that the machine's moods meet them alike. An FP8 cache halves "
    "the "
    "slope and may\n"
    "cost a little at the intercept: the break-even length says from where on it pays.\n\n"
    "Caches: f32, bf16, fp8, and fp8-skip-windows (layers with a window in bf16). Without --caches: bf16 and "
    "fp8, and "
    "the last\n"
    "one too if the model has windows. Ctrl-C ends the measurement and reports what there is.\n\n"
    "Examples:\n"
    "  kv8 bench latency smollm2-135m --rounds 3\n"
    "  kv8 bench latency ./Llama-3.1-8B-Instruct --html latency.html --json > latency.json\n"
    "  kv8 bench latency ./gemma-3-12b --prompt-lengths 1024,8192,32768 --caches bf16,fp8,fp8-skip-windows";

struct CacheKind {
  const char* name;
  const char* dtype;
  const char* skip_layers;
  const char* description;
};

constexpr CacheKind kCaches[] = {
    {"bf16", "bf16", "", "every layer in BF16"},
    {"fp8", "fp8", "", "every layer in FP8 (e4m3)"},
    {"fp8-skip-windows", "fp8", "sliding_window", "FP8, layers with a window in BF16"},
    {"f32", "f32", "", "every layer in float32"},
};

Expected<const CacheKind*> cache_kind(const std::string& name) {
  const auto* kind = std::ranges::find_if(kCaches, [&](const CacheKind& one) { return name == one.name; });
  if (kind != std::end(kCaches)) return kind;
  std::vector<std::string> names;
  for (const CacheKind& one : kCaches) names.emplace_back(one.name);
  return make_error(ErrorCode::invalid_argument, "--caches: '{}': expected {}", name, fmt::join(names, ", "));
}

std::string now_iso8601() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return make_error(ErrorCode::io, "{}: can't be written", path);
  return {};
}

struct Subjects {
  std::vector<std::unique_ptr<bench::Subject>> list;
  std::string machine;
};

// One engine per cache. They read the same file, mapped once by the operating system.
Expected<Subjects> load_subjects(LatencyCommand& command) {
  Subjects subjects;
  std::vector<std::string> names = command.caches;
  if (names.empty()) names = {"bf16", "fp8"};
  for (size_t i = 0; i < names.size(); ++i) {
    KV8_ASSIGN_OR_RETURN(const CacheKind* kind, cache_kind(names[i]));
    ModelOptions model = command.model;
    model.kv_cache_dtype = kind->dtype;
    model.skip_layers = kind->skip_layers;
    KV8_ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, load_engine(model));
    if (i == 0) {
      const bool windows = std::ranges::any_of(engine->cache_plan().layers,
                                               [](const auto& layer) { return layer.window > 0; });
      if (windows && command.caches.empty()) names.emplace_back("fp8-skip-windows");
      subjects.machine = engine->backend();
      command.options.vocab = engine->config().vocab_size;
      const int64_t limit = engine->max_model_len() - command.options.output_tokens;
      if (limit < 1) {
        return make_error(
            ErrorCode::invalid_argument,
            "a context of {} has no room for {} output tokens and a prompt: lower --output-tokens",
            engine->max_model_len(), command.options.output_tokens);
      }
      command.options.prompt_lengths = bench::clip_lengths(command.options.prompt_lengths, limit);
      // The next engines need no room for more.
      command.model.max_model_len = command.options.prompt_lengths.back() + command.options.output_tokens;
    }
    subjects.list.push_back(bench::engine_subject(std::move(engine), kind->name, kind->description));
  }
  return subjects;
}

Expected<int> execute(LatencyCommand& command) {
  for (const std::string& name : command.caches) KV8_RETURN_IF_ERROR(cache_kind(name));
  command.options.cancel = &interrupt_flag();
  KV8_ASSIGN_OR_RETURN(Subjects subjects, load_subjects(command));
  ProgressBar progress("measuring");
  command.options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  KV8_ASSIGN_OR_RETURN(const bench::LatencyReport report,
                       bench::measure_latency(subjects.list, command.options));
  progress.clear();
  const bench::LatencyContext context{command.model.model, subjects.machine, now_iso8601(), command.command};
  if (command.json) {
    print_output("{}\n", bench::latency_json(report, command.options, context).dump(2));
  } else {
    print_output("{}", bench::latency_table(report, command.options, context));
  }
  if (!command.html.empty()) {
    KV8_RETURN_IF_ERROR(write_file(command.html, bench::latency_html(report, command.options, context)));
    fmt::print(stderr, "kv8: the page is in {}\n", command.html);
  }
  return report.interrupted ? exit_interrupted : exit_ok;
}

}  // namespace

void add_bench(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand("bench", "Measure speed on this machine");
  command->require_subcommand(1);
  CLI::App* latency = command->add_subcommand(
      "latency", "Time to the first token and between tokens, by prompt length and cache");
  latency->footer(kLatencyFooter);
  auto options = std::make_shared<LatencyCommand>();
  options->options.prompt_lengths = bench::default_prompt_lengths();
  add_model_argument(*latency, options->model.model);
  latency
      ->add_option("--prompt-lengths", options->options.prompt_lengths,
                   "Tokens, comma-separated; those beyond the context are cut to it")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(whole_number(1));
  latency->add_option("--output-tokens", options->options.output_tokens, "Tokens of each answer, 2 at least")
      ->check(whole_number(2));
  latency->add_option("--rounds", options->options.rounds, "Times that everything is measured")
      ->check(whole_number(1, std::numeric_limits<int>::max()));
  latency->add_option("--warmups", options->options.warmups, "Runs before, not counted")
      ->check(whole_number(0, std::numeric_limits<int>::max()));
  latency
      ->add_option("--caches", options->caches,
                   "What to compare, comma-separated: bf16, fp8, fp8-skip-windows, f32")
      ->delimiter(',')
      ->allow_extra_args(false);
  latency->add_option("--seed", options->options.seed, "Of the prompts")->check(whole_number(0));
  latency->add_option("--html", options->html, "Write a page with tables and plots to this file");
  latency->add_flag("--json", options->json, "Print JSON instead of the table");
  add_engine_options(*latency, options->model);
  latency->callback([options, latency, &selected] {
    options->command = "kv8 bench latency " + options->model.model;
    for (const CLI::Option* option : latency->get_options()) {
      if (option->count() == 0 || option->get_name() == "MODEL") continue;
      options->command += " " + option->get_name();
      if (option->get_items_expected_max() > 0)
        options->command += fmt::format(" {}", fmt::join(option->results(), ","));
    }
    std::ranges::sort(options->options.prompt_lengths);
    selected = work(options, execute);
  });
}

}  // namespace kv8::cli
