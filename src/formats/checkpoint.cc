#include "formats/checkpoint.h"

#include <algorithm>
#include <set>
#include <system_error>

#include <fmt/ranges.h>

#include "formats/gguf_to_hf.h"

namespace kv8::formats {

namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;
constexpr size_t kMaxIndexBytes = size_t{100} << 20;

// A link counts even where it leads nowhere: reading it is an error then, which names it, and not silence.
bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::symlink_status(path, ignored).type() != std::filesystem::file_type::not_found;
}

Expected<Json> read_json(const std::filesystem::path& path, size_t max_bytes) {
  KV8_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, max_bytes));
  KV8_ASSIGN_OR_RETURN(Json json, parse_json(text, path.string()));
  if (!json.is_object()) {
    return make_error(ErrorCode::corrupt_data, "{}: expected an object, found {}", path.string(),
                      json.type_name());
  }
  return json;
}

// A shard lies beside its index: its name is a plain file name, never a way out of the folder.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

// "chat_template" is the template, or a list of {"name", "template"} whose "default" is it.
std::optional<std::string> template_in(const Json& tokenizer_config) {
  const auto it = tokenizer_config.find("chat_template");
  if (it == tokenizer_config.end()) return std::nullopt;
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return std::nullopt;
  for (const Json& item : *it) {
    if (!item.is_object() || item.value("name", Json()) != "default") continue;
    const auto text = item.find("template");
    if (text != item.end() && text->is_string()) return text->get<std::string>();
  }
  return std::nullopt;
}

// How alike two names are: what they share at their beginnings and ends.
size_t likeness(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t front = 0;
  while (front < shorter && a[front] == b[front]) ++front;
  size_t back = 0;
  while (front + back < shorter && a[a.size() - 1 - back] == b[b.size() - 1 - back]) ++back;
  return front + back;
}

std::vector<std::string_view> nearest(std::string_view name, std::vector<std::string_view> names) {
  constexpr size_t kShown = 3;
  const auto middle = names.begin() + static_cast<ptrdiff_t>(std::min(kShown, names.size()));
  std::ranges::partial_sort(names, middle, std::ranges::greater(),
                            [name](std::string_view other) { return likeness(name, other); });
  names.erase(middle, names.end());
  return names;
}

// The one .gguf file of a folder, to say that it could be named instead.
std::string gguf_hint(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".gguf") {
      return fmt::format("; there is {}: name the file itself to use it", entry.path().filename().string());
    }
  }
  return {};
}

}  // namespace

Expected<Checkpoint> Checkpoint::open(const std::filesystem::path& path) {
  std::error_code ignored;
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (std::filesystem::is_directory(path, ignored)) {
    KV8_RETURN_IF_ERROR(checkpoint.open_folder(path));
  } else if (path.extension() == ".safetensors") {
    return make_error(ErrorCode::invalid_argument,
                      "{}: name the folder that has config.json, not its weights", path.string());
  } else {
    KV8_RETURN_IF_ERROR(checkpoint.open_gguf(path));
    KV8_RETURN_IF_ERROR(checkpoint.read_gguf_model());
    KV8_RETURN_IF_ERROR(checkpoint.read_gguf_chat());
  }
  return checkpoint;
}

Expected<Checkpoint> Checkpoint::open_text(const std::filesystem::path& path) {
  std::error_code ignored;
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (std::filesystem::is_directory(path, ignored)) {
    checkpoint.folder_ = path;
    KV8_RETURN_IF_ERROR(checkpoint.open_tokenizer());
    if (!checkpoint.tokenizer_json_path_) {
      return make_error(ErrorCode::not_found, "{}: no tokenizer.json{}", path.string(), gguf_hint(path));
    }
  } else if (path.extension() == ".safetensors" || path.extension() == ".json") {
    return make_error(ErrorCode::invalid_argument, "{}: name the folder that has tokenizer.json",
                      path.string());
  } else {
    KV8_RETURN_IF_ERROR(checkpoint.open_gguf(path));
  }
  return checkpoint;
}

Status Checkpoint::open_folder(const std::filesystem::path& folder) {
  folder_ = folder;
  const auto config_path = folder / "config.json";
  if (!is_there(config_path)) {
    return make_error(ErrorCode::not_found, "{}: not a model folder, it has no config.json{}",
                      folder.string(), gguf_hint(folder));
  }
  config_source_ = config_path.string();
  KV8_ASSIGN_OR_RETURN(config_, read_json(config_path, kMaxConfigBytes));
  KV8_RETURN_IF_ERROR(open_weights());
  KV8_RETURN_IF_ERROR(open_tokenizer());
  return open_chat();
}

Status Checkpoint::open_weights() {
  const auto single = folder_ / "model.safetensors";
  const auto index = folder_ / "model.safetensors.index.json";
  if (!is_there(single)) {
    if (is_there(index)) return open_shards(index);
    return make_error(ErrorCode::not_found,
                      "{}: neither model.safetensors nor model.safetensors.index.json is there{}",
                      folder_.string(), gguf_hint(folder_));
  }
  KV8_ASSIGN_OR_RETURN(Safetensors file, Safetensors::open(single));
  const auto& shard = *shards_.emplace_back(std::make_unique<Safetensors>(std::move(file)));
  for (const std::string& name : shard.names()) {
    tensors_.emplace(name, shard.find(name));
    total_bytes_ += shard.find(name)->bytes;
  }
  return {};
}

Status Checkpoint::open_shards(const std::filesystem::path& index_path) {
  const std::string source = index_path.string();
  KV8_ASSIGN_OR_RETURN(const Json index, read_json(index_path, kMaxIndexBytes));
  const auto weight_map = index.find("weight_map");
  if (weight_map == index.end() || !weight_map->is_object()) {
    return make_error(ErrorCode::corrupt_data, "{}: weight_map: expected an object", source);
  }
  std::set<std::string> shard_names;
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get_ref<const std::string&>())) {
      return make_error(ErrorCode::corrupt_data,
                        "{}: weight_map: {}: expected the name of a file in the same folder, found {}",
                        source, tensor, shard.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    shard_names.insert(shard.get<std::string>());
  }
  for (const std::string& shard_name : shard_names) {
    KV8_ASSIGN_OR_RETURN(Safetensors file, Safetensors::open(folder_ / shard_name));
    const auto& shard = *shards_.emplace_back(std::make_unique<Safetensors>(std::move(file)));
    for (const std::string& name : shard.names()) {
      // The index decides where a tensor is read from. Tensors that it doesn't know are read too: tools that
      // add scales to a checkpoint don't always update it.
      const auto listed = weight_map->find(name);
      if (listed != weight_map->end() && *listed != shard_name) continue;
      if (!tensors_.emplace(name, shard.find(name)).second) {
        return make_error(ErrorCode::corrupt_data, "{}: {}: in two shards, and not in {}",
                          shard.path().string(), name, source);
      }
      total_bytes_ += shard.find(name)->bytes;
    }
  }
  for (const auto& [tensor, shard] : weight_map->items()) {
    if (!tensors_.contains(tensor)) {
      return make_error(ErrorCode::corrupt_data, "{}: weight_map: {}: {} doesn't have this tensor", source,
                        tensor, shard.get_ref<const std::string&>());
    }
  }
  return {};
}

Status Checkpoint::open_tokenizer() {
  if (const auto path = folder_ / "tokenizer_config.json"; is_there(path)) {
    KV8_ASSIGN_OR_RETURN(tokenizer_config_, read_json(path, kMaxConfigBytes));
  }
  if (const auto path = folder_ / "tokenizer.json"; is_there(path)) tokenizer_json_path_ = path;
  return {};
}

Status Checkpoint::open_chat() {
  if (const auto path = folder_ / "generation_config.json"; is_there(path)) {
    KV8_ASSIGN_OR_RETURN(generation_config_, read_json(path, kMaxConfigBytes));
  }
  if (tokenizer_config_.is_object()) {
    chat_template_ = template_in(tokenizer_config_);
    chat_template_source_ = (folder_ / "tokenizer_config.json").string() + ": chat_template";
  }
  if (const auto path = folder_ / "chat_template.jinja"; is_there(path)) {
    KV8_ASSIGN_OR_RETURN(chat_template_, read_text_file(path, kMaxConfigBytes));
    chat_template_source_ = path.string();
  }
  return {};
}

Status Checkpoint::open_gguf(const std::filesystem::path& file) {
  folder_ = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  KV8_ASSIGN_OR_RETURN(Gguf gguf, Gguf::open(file));
  gguf_ = std::make_unique<Gguf>(std::move(gguf));
  return {};
}

Status Checkpoint::read_gguf_model() {
  config_source_ = path_.string();
  KV8_ASSIGN_OR_RETURN(config_, hf_config_from_gguf(*gguf_));
  KV8_ASSIGN_OR_RETURN(const std::string_view architecture, gguf_->string("general.architecture"));
  for (const std::string_view name : gguf_->names()) {
    std::string hf_name = hf_name_from_gguf(architecture, name);
    const TensorView* view = gguf_->find(name);
    const bool is_new = !tensors_.contains(hf_name) && !unreadable_.contains(hf_name);
    if (!is_new) {
      return make_error(ErrorCode::corrupt_data, "{}: {}: another tensor stands for {} too", config_source_,
                        name, hf_name);
    }
    if (view == nullptr) {
      unreadable_.emplace(std::move(hf_name), name);
    } else {
      total_bytes_ += view->bytes;
      tensors_.emplace(std::move(hf_name), view);
    }
  }
  return {};
}

Status Checkpoint::read_gguf_chat() {
  if (gguf_->has("tokenizer.chat_template")) {
    KV8_ASSIGN_OR_RETURN(const std::string_view text, gguf_->string("tokenizer.chat_template"));
    chat_template_ = text;
    chat_template_source_ = path_.string() + ": tokenizer.chat_template";
  }
  return {};
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

Expected<TensorView> Checkpoint::tensor(std::string_view name) const {
  if (const TensorView* view = find(name); view != nullptr) return *view;
  if (const auto it = unreadable_.find(name); it != unreadable_.end()) return gguf_->tensor(it->second);
  return make_error(ErrorCode::not_found, "{}: there is no tensor '{}'; the nearest names are {}",
                    path_.string(), name, fmt::join(nearest(name, names()), ", "));
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size() + unreadable_.size());
  for (const auto& [name, view] : tensors_) names.push_back(name);
  for (const auto& [name, gguf_name] : unreadable_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

}  // namespace kv8::formats
