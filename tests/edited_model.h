// A copy of a model fixture with something changed in it, in a folder that vanishes with its test.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/json.h"
#include "fixtures.h"
#include "formats/format_files.h"
#include "formats/safetensors.h"

namespace kv8::test {

struct OwnedTensor {
  DType dtype = DType::f32;
  Shape shape;
  std::string bytes;
};

// What may be changed: the config and the tensors by their names.
struct EditableModel {
  Json config;
  std::map<std::string, OwnedTensor> tensors;

  void rename(const std::string& from, const std::string& to) {
    auto node = tensors.extract(from);
    ASSERT_FALSE(node.empty()) << from;
    node.key() = to;
    tensors.insert(std::move(node));
  }
};

inline OwnedTensor f32_tensor(const Shape& shape, const std::vector<float>& values) {
  OwnedTensor tensor{DType::f32, shape, std::string(values.size() * sizeof(float), '\0')};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

class EditedModel {
 public:
  // fixture: a folder below models/.
  EditedModel(const std::string& fixture, const std::function<void(EditableModel&)>& edit) {
    const auto from = fixtures() / "models" / fixture;
    EditableModel model;
    model.config = Json::parse(read_bytes(from / "config.json"));
    const auto file = formats::Safetensors::open(from / "model.safetensors").value();
    for (const std::string& name : file.names()) {
      const TensorView& view = *file.find(name);
      model.tensors[name] = {view.dtype, view.shape,
                             std::string(reinterpret_cast<const char*>(view.data), view.bytes)};
    }
    edit(model);
    write_bytes(folder_ / "config.json", model.config.dump());
    std::vector<formats::NamedTensor> tensors;
    for (const auto& [name, tensor] : model.tensors) {
      tensors.push_back({name,
                         {tensor.dtype, tensor.shape, reinterpret_cast<const std::byte*>(tensor.bytes.data()),
                          tensor.bytes.size()}});
    }
    EXPECT_TRUE(formats::write_safetensors(folder_ / "model.safetensors", tensors));
  }

  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace kv8::test
