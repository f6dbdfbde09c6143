// A model as it lies on disk: a Hugging Face folder (config.json, safetensors in one file or in shards, and
// what comes with them) or a single .gguf file, seen alike. Owns the maps; every view is into them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/tensor.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

namespace kv8::formats {

class Checkpoint {
 public:
  // path: a folder or a .gguf file. Everything is checked here but tensors of a GGUF type that kv8 doesn't
  // read, which are errors once they are asked for.
  static Expected<Checkpoint> open(const std::filesystem::path& path);

  // What a tokenizer needs and nothing else: of a folder tokenizer.json and tokenizer_config.json, of a GGUF
  // its vocabulary. There is no config, there are no tensors and there is no chat template.
  static Expected<Checkpoint> open_text(const std::filesystem::path& path);

  // The config in the style of config.json; from a GGUF, what formats/gguf_to_hf.h makes of its metadata.
  const Json& config() const { return config_; }
  const std::string& config_source() const { return config_source_; }  // the file, for messages
  const Json* generation_config() const { return generation_config_ ? &*generation_config_ : nullptr; }

  // Tensors by their Hugging Face names. has: of a type that kv8 reads or not. find gives nullptr where there
  // is none, or none that can be read. tensor's errors: not_found, with the nearest names, and unsupported.
  bool has(std::string_view name) const { return tensors_.contains(name) || unreadable_.contains(name); }
  Expected<TensorView> tensor(std::string_view name) const;
  const TensorView* find(std::string_view name) const;
  std::vector<std::string_view> names() const;         // sorted
  size_t total_bytes() const { return total_bytes_; }  // of the tensors' data

  const std::filesystem::path& path() const { return path_; }
  const std::filesystem::path& folder() const { return folder_; }  // where it lies; of a GGUF, its parent
  bool is_gguf() const { return gguf_ != nullptr; }
  const Gguf* gguf() const { return gguf_.get(); }

  // The Jinja source of the chat template, wherever it is kept, and where that is, for messages.
  std::optional<std::string> chat_template() const { return chat_template_; }
  const std::string& chat_template_source() const { return chat_template_source_; }
  std::optional<std::filesystem::path> tokenizer_json_path() const { return tokenizer_json_path_; }
  const Json& tokenizer_config() const { return tokenizer_config_; }  // null if there is none

 private:
  Checkpoint() = default;
  Status open_folder(const std::filesystem::path& folder);
  Status open_weights();
  Status open_shards(const std::filesystem::path& index_path);
  Status open_tokenizer();
  Status open_chat();
  Status open_gguf(const std::filesystem::path& file);
  Status read_gguf_model();
  Status read_gguf_chat();

  std::filesystem::path path_;
  std::filesystem::path folder_;
  std::vector<std::unique_ptr<Safetensors>> shards_;
  std::unique_ptr<Gguf> gguf_;
  std::map<std::string, const TensorView*, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unreadable_;  // Hugging Face name -> GGUF name
  size_t total_bytes_ = 0;
  Json config_;
  std::string config_source_;
  std::optional<Json> generation_config_;
  Json tokenizer_config_;
  std::optional<std::filesystem::path> tokenizer_json_path_;
  std::optional<std::string> chat_template_;
  std::string chat_template_source_;
};

}  // namespace kv8::formats
