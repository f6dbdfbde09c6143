// What the commands share: exit codes, how a command is declared, how errors are told.
#pragma once

#include <functional>
#include <memory>

#include <CLI/CLI.hpp>

#include "core/error.h"

namespace kv8::cli {

// Documented in `kv8 --help`.
enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,         // `check`: outside of the bounds
  exit_usage = 2,          // options or values that make no sense
  exit_model = 3,          // a file that is missing, damaged or of an unsupported kind
  exit_memory = 4,         // not enough memory
  exit_output = 5,         // standard output could not be written
  exit_interrupted = 130,  // Ctrl-C
};

// The work of the command that the user named, set by its callback and run after parsing.
using Selected = std::function<int()>;

void add_run(CLI::App& app, Selected& selected);
void add_info(CLI::App& app, Selected& selected);
void add_tokenize(CLI::App& app, Selected& selected);
void add_check(CLI::App& app, Selected& selected);
void add_eval(CLI::App& app, Selected& selected);
void add_bench(CLI::App& app, Selected& selected);
void add_version(CLI::App& app, Selected& selected);

// Prints "kv8: <message>" to stderr and returns the exit code that fits.
int report(const Error& error);

// A command's work: runs it on its options, and reports its error if it has one.
template <class Options>
std::function<int()> work(std::shared_ptr<Options> options, Expected<int> (*execute)(Options&)) {
  return [options = std::move(options), execute] {
    const auto result = execute(*options);
    return result ? *result : report(result.error());
  };
}

}  // namespace kv8::cli
