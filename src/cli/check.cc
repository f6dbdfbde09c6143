// kv8 check: a model's logits against another implementation's.
#include <cmath>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "core/json.h"
#include "eval/golden_check.h"

namespace kv8::cli {

namespace {

struct CheckOptions {
  ModelOptions model;
  std::string golden;
  std::string tensor = "logits";
  std::optional<double> logit_error;  // unset: what the cache's format allows
  std::optional<double> rms_error;
  std::optional<double> margin;
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
       {"rms error", std::isfinite(bounds.rms_error)
                         ? fmt::format("{:.2e} (bound {:.2e})", report.rms_error, bounds.rms_error)
                         : fmt::format("{:.2e}", report.rms_error)},
       {"KL divergence", fmt::format("{:.2e} nats mean, {:.2e} largest", report.mean_kl, report.max_kl)},
       {"best token equal", fmt::format("{:.1f}%", 100 * report.top1_agreement)},
       {"greedy tokens", greedy_text(report, bounds)}});
}

void print_json(const eval::GoldenReport& report, const eval::GoldenBounds& bounds) {
  const Json json = {{"passed", report.passed},
                     {"logits", report.logits_tensor},
                     {"positions", report.positions},
                     {"logit_deviation", report.logit_deviation},
                     {"max_error", report.max_error},
                     {"rms_error", report.rms_error},
                     {"worst_position", report.worst_position},
                     {"mean_kl", report.mean_kl},
                     {"max_kl", report.max_kl},
                     {"top1_agreement", report.top1_agreement},
                     {"greedy_tokens", report.greedy_tokens},
                     {"greedy_agreeing", report.greedy_agreeing},
                     {"greedy_failures", report.greedy_failures},
                     {"bounds",
                      {{"logit_error", bounds.logit_error},
                       {"rms_error", bounds.rms_error},  // null: none
                       {"margin", bounds.margin}}}};
  print_output("{}\n", json.dump(2));
}

// A bound that is no number would let everything pass.
Status set_bound(const char* name, const std::optional<double>& given, double& bound) {
  if (!given) return {};
  if (!(*given >= 0)) {
    return make_error(ErrorCode::invalid_argument, "{}: {}: expected a number, 0 or more", name, *given);
  }
  bound = *given;
  return {};
}

Expected<int> execute(CheckOptions& options) {
  KV8_ASSIGN_OR_RETURN(const engine::EngineOptions settings, engine_options(options.model));
  eval::GoldenBounds bounds = eval::default_bounds(settings.kv_cache_dtype);
  KV8_RETURN_IF_ERROR(set_bound("--logit-error", options.logit_error, bounds.logit_error));
  KV8_RETURN_IF_ERROR(set_bound("--rms-error", options.rms_error, bounds.rms_error));
  KV8_RETURN_IF_ERROR(set_bound("--margin", options.margin, bounds.margin));
  KV8_ASSIGN_OR_RETURN(const std::unique_ptr<engine::Engine> engine, load_engine(options.model));
  KV8_ASSIGN_OR_RETURN(const eval::GoldenReport report,
                       eval::check_golden(*engine, options.golden, options.tensor, bounds));
  if (options.json) {
    print_json(report, bounds);
  } else {
    print_report(report, bounds);
  }
  return report.passed ? exit_ok : exit_failed;
}

}  // namespace

void add_check(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand("check", "Compare a model's logits with a golden file");
  command->footer(
      "The golden file is safetensors: input_ids int32 [T], logits float32 [T, vocab], greedy int32 [N], "
      "margin float32 [N].\n"
      "Exit status 1 if the largest or the rms error of the logits is above its bound, or a greedy token\n"
      "differs where the margin is above --margin. Bounds, in standard deviations of the golden logits: "
      "2e-3\n"
      "for the largest error; with an FP8 cache, where K and V fall on either side of a rounding border,\n"
      "5e-2 for the largest, 1e-3 rms, and all greedy tokens.\n\n"
      "Example:\n  kv8 check ./llama --golden ./llama/golden.safetensors");
  auto options = std::make_shared<CheckOptions>();
  options->model.kv_cache_dtype =
      "f32";  // what is checked is the model; the cache's rounding only if asked for
  add_model_options(*command, options->model);
  command->add_option("--golden", options->golden, "The golden file")->required();
  command->add_option("--tensor", options->tensor, "The golden logits in it");
  command->add_option("--logit-error", options->logit_error,
                      "Largest error of a logit, in units of the golden logits' standard deviation");
  command->add_option("--rms-error", options->rms_error, "Largest rms error of the logits, in the same unit");
  command->add_option("--margin", options->margin,
                      "Greedy tokens must agree where the golden margin is above this");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &selected] { selected = work(options, execute); });
}

}  // namespace kv8::cli
