// kv8 check: a model's logits against another implementation's.
#include <memory>

#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "core/json.h"
#include "eval/golden_check.h"

namespace kv8::cli {

namespace {

struct CheckOptions {
  ModelOptions model;
  std::string golden;
  std::string tensor = "logits";
  eval::GoldenBounds bounds;
  bool json = false;
};

std::string greedy_text(const eval::GoldenReport& report, const eval::GoldenBounds& bounds) {
  if (report.greedy_tokens == 0) return "not compared (the file's belong to its tensor `logits`)";
  return fmt::format("{} of {} equal; {} differ where the margin is above {}", report.greedy_agreeing,
                     report.greedy_tokens, report.greedy_failures, bounds.margin);
}

void print_report(const eval::GoldenReport& report, const eval::GoldenBounds& bounds) {
  print_fields(
      report.passed ? "passed" : "FAILED",
      {{"positions", fmt::format("{} ({})", report.positions, report.logits_tensor)},
       {"largest error",
        fmt::format("{:.2e} of the logits' standard deviation, at position {} (bound {:.2e})",
                    report.max_error, report.worst_position, bounds.logit_error)},
       {"rms error", fmt::format("{:.2e}", report.rms_error)},
       {"KL divergence", fmt::format("{:.2e} nats mean, {:.2e} largest", report.mean_kl, report.max_kl)},
       {"best token equal", fmt::format("{:.1f}%", 100 * report.top1_agreement)},
       {"greedy tokens", greedy_text(report, bounds)}});
}

void print_json(const eval::GoldenReport& report, const eval::GoldenBounds& bounds) {
  const Json json = {{"passed", report.passed},
                     {"logits", report.logits_tensor},
                     {"positions", report.positions},
                     {"logit_deviation", report.logit_deviation},
                     {"bf16_rope_frequencies", report.bf16_rope_frequencies},
                     {"max_error", report.max_error},
                     {"rms_error", report.rms_error},
                     {"worst_position", report.worst_position},
                     {"mean_kl", report.mean_kl},
                     {"max_kl", report.max_kl},
                     {"top1_agreement", report.top1_agreement},
                     {"greedy_tokens", report.greedy_tokens},
                     {"greedy_agreeing", report.greedy_agreeing},
                     {"greedy_failures", report.greedy_failures},
                     {"bounds", {{"logit_error", bounds.logit_error}, {"margin", bounds.margin}}}};
  fmt::print("{}\n", json.dump(2));
}

Expected<int> execute(CheckOptions& options) {
  KV8_ASSIGN_OR_RETURN(const engine::EngineOptions settings, engine_options(options.model));
  KV8_ASSIGN_OR_RETURN(const std::string path, locate_model(options.model.model));
  std::vector<std::string> warnings;
  KV8_ASSIGN_OR_RETURN(
      const eval::GoldenReport report,
      eval::check_golden(path, settings, options.golden, options.tensor, options.bounds, warnings));
  print_warnings(warnings);
  if (report.bf16_rope_frequencies) {
    fmt::print(stderr,
               "kv8: note: the golden logits are met only with RoPE's frequencies rounded to bfloat16: "
               "whoever wrote them had "
               "cast the whole model. kv8 runs models with float32 frequencies.\n");
  }
  if (options.json) {
    print_json(report, options.bounds);
  } else {
    print_report(report, options.bounds);
  }
  return report.passed ? exit_ok : exit_failed;
}

}  // namespace

void add_check(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand("check", "Compare a model's logits with a golden file");
  command->footer(
      "The golden file is safetensors: input_ids int32 [T], logits float32 [T, vocab], greedy int32 [N], "
      "margin float32 [N].\n"
      "Exit status 1 if a logit is further off than --logit-error, or a greedy token differs where the "
      "margin is above\n"
      "--margin.\n\nExample:\n  kv8 check ./llama --golden ./llama/golden.safetensors");
  auto options = std::make_shared<CheckOptions>();
  options->model.kv_cache_dtype =
      "f32";  // what is checked is the model; the cache's rounding only if asked for
  add_model_options(*command, options->model);
  command->add_option("--golden", options->golden, "The golden file")->required();
  command->add_option("--tensor", options->tensor, "The golden logits in it");
  command->add_option("--logit-error", options->bounds.logit_error,
                      "Largest error of a logit, in units of the golden logits' standard deviation");
  command->add_option("--margin", options->bounds.margin,
                      "Greedy tokens must agree where the golden margin is above this");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &selected] { selected = work(options, execute); });
}

}  // namespace kv8::cli
