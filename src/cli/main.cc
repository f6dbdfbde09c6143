// kv8: the command line. One file per command; this one declares them and runs the one that was named.
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>

#include <kv8/version.h>

#include "cli/command.h"
#include "cli/output.h"
#include "numerics/simd.h"

namespace kv8::cli {

int report(const Error& error) {
  flush_output();
  fmt::print(stderr, "kv8: {}\n", error.message);
  switch (error.code) {
    case ErrorCode::invalid_argument:
      return exit_usage;
    case ErrorCode::out_of_memory:
      return exit_memory;
    case ErrorCode::cancelled:
      return exit_interrupted;
    case ErrorCode::not_found:
    case ErrorCode::corrupt_data:
    case ErrorCode::unsupported:
    case ErrorCode::io:
      return exit_model;
  }
  return exit_model;
}

namespace {

constexpr const char* kDescription =
    "kv8 runs long-context language models with an FP8 KV cache.\n\n"
    "MODEL is a Hugging Face folder, a .gguf file, or a name that kv8 fetches: smollm2-135m.\n\n"
    "Try:\n"
    "  kv8 run smollm2-135m -p \"What is a KV cache?\"\n"
    "  kv8 info smollm2-135m";

constexpr const char* kFooter =
    "Exit codes: 0 success; 1 check: outside of the bounds; 2 wrong options; 3 a model or file that is "
    "missing, damaged or\n"
    "unsupported; 4 not enough memory; 5 the output could not be written; 130 interrupted.\n"
    "The environment variable KV8_SIMD=avx2 (sse4, ...) keeps the CPU kernels from using anything better.\n"
    "`kv8 COMMAND --help` explains a command.";

// The exit status of a command whose status was this, once all it printed has been written.
int finish(int status) {
  const Status written = finish_output();
  if (written) return status;
  report(written.error());
  return exit_output;
}

int run(int argc, char** argv) {
  CLI::App app(kDescription, "kv8");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("kv8 ") + KV8_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  app.option_defaults()->always_capture_default();
  Selected selected;
  add_run(app, selected);
  add_info(app, selected);
  add_tokenize(app, selected);
  add_check(app, selected);
  add_eval(app, selected);
  add_bench(app, selected);
  add_version(app, selected);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream complaint;
    const int code = app.exit(error, out, complaint);
    write_output(out.str());
    fmt::print(stderr, "{}", complaint.str());
    return finish(code == 0 ? exit_ok : exit_usage);
  }
  if (const Status status = numerics::limit_simd_by_environment(); !status) return report(status.error());
  return finish(selected());
}

}  // namespace
}  // namespace kv8::cli

int main(int argc, char** argv) {
  try {
    return kv8::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("kv8: not enough memory\n", stderr);
    return kv8::cli::exit_memory;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kv8: %s\n", error.what());
    return kv8::cli::exit_model;
  }
}
