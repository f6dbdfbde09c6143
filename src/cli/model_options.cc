#include "cli/model_options.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <unistd.h>

#include "cli/model_fetch.h"
#include "cli/terminal.h"
#include "cli/whole_number.h"

namespace kv8::cli {

void add_model_argument(CLI::App& command, std::string& model) {
  command.add_option("MODEL", model, "A Hugging Face folder, a .gguf file, or smollm2-135m (fetched once)")
      ->required();
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  add_model_argument(command, options.model);
  const char* group = "Model and cache";
  command
      .add_option("--kv-cache-dtype", options.kv_cache_dtype,
                  "How keys and values are stored: fp8 (e4m3), bf16 or f32")
      ->group(group);
  command
      .add_option("--kv-cache-dtype-skip-layers", options.skip_layers,
                  "Layers that stay in bf16: sliding_window, layer numbers, or both (sliding_window,0,5)")
      ->group(group);
  add_engine_options(command, options);
}

void add_engine_options(CLI::App& command, ModelOptions& options) {
  const char* group = "Model and cache";
  command
      .add_option("--attention-accumulate", options.accumulate,
                  "f32 (fast, Q and P unquantised); tile, two-level, single (Hopper's FP8 tensor core, "
                  "emulated bit for bit, "
                  "slow); exact (float64)")
      ->group(group);
  command
      .add_option("--kv-scales", options.kv_scales,
                  "Scales of the FP8 cache: a safetensors file, or 1.0 to set the checkpoint's aside")
      ->group(group);
  command
      .add_option("--max-model-len", options.max_model_len,
                  "Tokens of context; 0: what the model was trained for")
      ->check(whole_number(0))
      ->group(group);
  command.add_option("--prefill-chunk", options.prefill_chunk, "Prompt tokens that run as one step")
      ->check(whole_number(1))
      ->group(group);
  command.add_option("--threads", options.threads, "CPU threads; 0: all that the process may use")
      ->check(whole_number(0, 4096))
      ->group(group);
}

Expected<std::string> locate_model(const std::string& model) {
  std::error_code ignored;  // what can't be looked at is an error of whoever opens it
  if (std::filesystem::symlink_status(model, ignored).type() != std::filesystem::file_type::not_found)
    return model;
  if (is_fetchable_model(model)) return fetch_model(model);
  return make_error(ErrorCode::not_found,
                    "{}: no such folder or file, and no model of that name (kv8 fetches: {})", model,
                    fetchable_models());
}

Expected<engine::EngineOptions> engine_options(const ModelOptions& options) {
  engine::EngineOptions result;
  KV8_ASSIGN_OR_RETURN(result.kv_cache_dtype, kv_cache::kv_format_from(options.kv_cache_dtype));
  KV8_ASSIGN_OR_RETURN(result.accumulate, attention::accumulate_from(options.accumulate));
  result.skip_layers = options.skip_layers;
  result.kv_scales = options.kv_scales;
  result.threads = options.threads;
  result.max_model_len = options.max_model_len;
  result.prefill_chunk = options.prefill_chunk;
  return result;
}

void print_warnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) fmt::print(stderr, "kv8: note: {}\n", warning);
}

Expected<std::unique_ptr<engine::Engine>> load_engine(const ModelOptions& options) {
  KV8_ASSIGN_OR_RETURN(engine::EngineOptions settings, engine_options(options));
  KV8_ASSIGN_OR_RETURN(const std::string path, locate_model(options.model));
  ProgressBar progress("loading the layers");
  settings.on_load = [&](int64_t done, int64_t total) {
    progress.update(done, total);
    return !interrupt_flag().load(std::memory_order_relaxed);
  };
  KV8_ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, engine::Engine::create(path, settings));
  progress.clear();
  print_warnings(engine->warnings());
  return engine;
}

void add_text_source(CLI::App& command, TextSource& source) {
  source.text_option = command.add_option("-p,--prompt", source.text, "The text");
  command.add_option("-f,--file", source.file, "A file with the text; - for standard input")
      ->excludes(source.text_option);
}

namespace {

// To its end, as a stream: a pipe, a terminal and a file of /proc have no size to go by.
Expected<std::string> read_stream(std::FILE* stream, const std::string& name) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  std::string text;
  std::array<char, 1 << 16> buffer{};
  size_t count = 0;
  errno = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), stream)) > 0) {
    text.append(buffer.data(), count);
    if (text.size() > kMaxBytes) {
      return make_error(ErrorCode::invalid_argument, "{}: more than {} bytes of text", name, kMaxBytes);
    }
  }
  if (std::ferror(stream) != 0) return make_error(ErrorCode::io, "{}: {}", name, std::strerror(errno));
  return text;
}

}  // namespace

Expected<std::string> read_text_source(const TextSource& source) {
  if (source.text_option->count() > 0) return source.text;
  if (!source.file.empty() && source.file != "-") {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(source.file.c_str(), "rb"),
                                                               std::fclose);
    if (!file) {
      return make_error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, "{}: cannot open: {}",
                        source.file, std::strerror(errno));
    }
    return read_stream(file.get(), source.file);
  }
  if (source.file.empty() && ::isatty(STDIN_FILENO) == 1) {
    return make_error(ErrorCode::invalid_argument, "no text: give -p TEXT, -f FILE, or pipe it in");
  }
  return read_stream(stdin, "standard input");
}

}  // namespace kv8::cli
