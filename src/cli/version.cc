// kv8 version
#include <memory>

#include <kv8/version.h>

#include "cli/command.h"
#include "cli/output.h"
#include "core/json.h"
#include "numerics/simd.h"

namespace kv8::cli {

void add_version(CLI::App& app, Selected& selected) {
  CLI::App* command = app.add_subcommand(
      "version", "Print the version, and the instruction set that the CPU kernels use here");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json, &selected] {
    selected = [json] {
      if (*json) {
        print_output("{}\n", Json{{"version", KV8_VERSION}, {"simd", numerics::simd_name()}}.dump());
      } else {
        print_output("kv8 {}\nCPU kernels: {}\n", KV8_VERSION, numerics::simd_name());
      }
      return static_cast<int>(exit_ok);
    };
  });
}

}  // namespace kv8::cli
