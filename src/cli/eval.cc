// kv8 eval: measurements of what FP8 costs. One sub-command per question.
#include <limits>
#include <memory>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"
#include "core/json.h"
#include "core/thread_pool.h"
#include "eval/numerics_report.h"

namespace kv8::cli {

namespace {

struct NumericsCommand {
  eval::NumericsOptions options;
  int threads = 0;
  bool json = false;
};

void print_table(const std::vector<eval::NumericsRow>& rows, const eval::NumericsOptions& options) {
  print_output(
      "Relative error of attention against float64 on the same quantised Q, K and V (head_dim {}, {} heads, "
      "seed {}).\n"
      "single: one 13-bit accumulator over all keys; two-level: tile sums in float32; tile: two levels in "
      "QK^T too, and\n"
      "P scaled by its own tile; f32: K and V widened, nothing else rounded.\n\n",
      options.head_dim, options.heads, options.seed);
  print_output("{:<14} {:>9} {:>10} {:>10} {:>10} {:>10}\n", "case", "keys", "single", "two-level", "tile",
               "f32");
  for (const eval::NumericsRow& row : rows) {
    print_output("{:<14} {:>9} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}\n", row.name, with_thousands(row.keys),
                 row.single, row.two_level, row.tile, row.f32);
  }
}

void print_json(const std::vector<eval::NumericsRow>& rows, const eval::NumericsOptions& options) {
  Json list = Json::array();
  for (const eval::NumericsRow& row : rows) {
    list.push_back({{"case", row.name},
                    {"keys", row.keys},
                    {"single", row.single},
                    {"two_level", row.two_level},
                    {"tile", row.tile},
                    {"f32", row.f32}});
  }
  const Json json = {
      {"head_dim", options.head_dim}, {"heads", options.heads}, {"seed", options.seed}, {"rows", list}};
  print_output("{}\n", json.dump(2));
}

Expected<int> execute(NumericsCommand& command) {
  ThreadPool pool(usable_threads(command.threads));
  ProgressBar progress("measuring");
  command.options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  KV8_ASSIGN_OR_RETURN(const std::vector<eval::NumericsRow> rows, eval::run_numerics(command.options, pool));
  progress.clear();
  if (command.json) {
    print_json(rows, command.options);
  } else {
    print_table(rows, command.options);
  }
  return exit_ok;
}

}  // namespace

void add_eval(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand("eval", "Measure what FP8 costs");
  command->require_subcommand(1);
  CLI::App* numerics =
      command->add_subcommand("numerics", "Errors of each way to add up FP8 products, by context length");
  numerics->footer(
      "No model is needed: Q, K and V are random, with a sink, a needle, or neither; Hopper's tensor core is "
      "emulated bit for\n"
      "bit. docs/numerics.md explains the columns.\n\nExample:\n  kv8 eval numerics --max-keys 32768");
  auto options = std::make_shared<NumericsCommand>();
  numerics->add_option("--max-keys", options->options.max_keys, "The longest context, 1,024 at least")
      ->check(whole_number(1024));
  numerics->add_option("--head-dim", options->options.head_dim, "A multiple of 32")
      ->check(whole_number(32, std::numeric_limits<int>::max()));
  numerics->add_option("--heads", options->options.heads, "Independent rows that the errors are taken over")
      ->check(whole_number(1, std::numeric_limits<int>::max()));
  numerics->add_option("--seed", options->options.seed, "Of the random numbers")
      ->check(whole_number(0, std::numeric_limits<uint32_t>::max()));
  numerics->add_option("--threads", options->threads, "CPU threads; 0: all that the process may use")
      ->check(whole_number(0, 4096));
  numerics->add_flag("--json", options->json, "Print JSON");
  numerics->callback([options, &selected] { selected = work(options, execute); });
}

}  // namespace kv8::cli
