// Options of every command that loads a model.
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "core/error.h"
#include "engine/engine.h"

namespace kv8::cli {

struct ModelOptions {
  std::string model;
  std::string kv_cache_dtype = "fp8";
  std::string skip_layers;
  std::string accumulate = "f32";
  std::string kv_scales;
  int threads = 0;
  int64_t max_model_len = 0;
  int64_t prefill_chunk = 512;
};

// Declares MODEL alone; the options that don't say what the cache is; MODEL and all options.
void add_model_argument(CLI::App& command, std::string& model);
void add_engine_options(CLI::App& command, ModelOptions& options);
void add_model_options(CLI::App& command, ModelOptions& options);

// Where MODEL lies: a folder or file as it is, a known name fetched into the cache first.
Expected<std::string> locate_model(const std::string& model);

Expected<engine::EngineOptions> engine_options(const ModelOptions& options);

void print_warnings(const std::vector<std::string>& warnings);  // to stderr

// Locates, loads, and prints the engine's warnings to stderr.
Expected<std::unique_ptr<engine::Engine>> load_engine(const ModelOptions& options);

// The text of a prompt: -p TEXT, -f FILE, or standard input ("-f -", or neither option and no terminal).
struct TextSource {
  std::string text;
  std::string file;
  CLI::Option* text_option = nullptr;
};
void add_text_source(CLI::App& command, TextSource& source);
Expected<std::string> read_text_source(const TextSource& source);

}  // namespace kv8::cli
