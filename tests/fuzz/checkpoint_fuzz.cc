// Any text as the index of a sharded model: it opens as a model, or is an error, and nothing outside of its
// folder is read.
#include <fstream>

#include "formats/checkpoint.h"
#include "fuzz.h"

namespace {

class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = "/dev/shm/kv8_checkpoint_fuzz_XXXXXX";
    kv8::fuzz::require(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    std::ofstream(path_ / "config.json") << "{}";
    const std::byte data[2] = {std::byte{1}, std::byte{2}};
    for (const char* name : {"a", "b"}) {
      const kv8::formats::NamedTensor tensor{name, {kv8::DType::u8, kv8::Shape({2}), data, 2}};
      kv8::fuzz::require(kv8::formats::write_safetensors(path_ / name, {&tensor, 1}).has_value());
    }
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  ~ModelFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ModelFolder folder;
  std::ofstream(folder.path() / "model.safetensors.index.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto model = kv8::formats::Checkpoint::open(folder.path());
  if (!model) return 0;
  for (const std::string_view name : model->names()) {
    kv8::fuzz::require(name == "a" || name == "b");
    const kv8::TensorView* view = model->find(name);
    kv8::fuzz::read_through({view->data, view->bytes});
  }
  return 0;
}
