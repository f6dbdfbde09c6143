#include "models/tensor_source.h"

#include <algorithm>

namespace kv8::models {

const TensorView* TensorSource::find(const std::string& name) {
  const TensorView* tensor = checkpoint_.find(name);
  if (tensor != nullptr) used_.insert(name);
  return tensor;
}

Expected<TensorView> TensorSource::get(const std::string& name, const Shape& shape) {
  KV8_ASSIGN_OR_RETURN(TensorView tensor, checkpoint_.tensor(name));
  used_.insert(name);
  if (tensor.shape != shape) {
    return make_error(ErrorCode::corrupt_data, "{}: tensor {}: shape {}, but the config asks for {}",
                      checkpoint_.config_source(), name, tensor.shape.to_string(), shape.to_string());
  }
  return tensor;
}

Expected<ops::MatrixPart> TensorSource::part(const std::string& name, int64_t rows, int64_t cols) {
  ops::MatrixPart part;
  part.name = name;
  KV8_ASSIGN_OR_RETURN(part.data, get(name + ".weight", Shape{rows, cols}));
  for (const char* suffix : {".weight_scale", ".weight_scale_inv"}) {
    if (const TensorView* scale = find(name + suffix); scale != nullptr) part.scale = *scale;
  }
  if (find(name + ".bias") != nullptr) {
    KV8_ASSIGN_OR_RETURN(part.bias, get(name + ".bias", Shape{rows}));
  }
  return part;
}

Expected<std::unique_ptr<ops::Matrix>> TensorSource::matrix(const std::string& name, int64_t rows,
                                                            int64_t cols) {
  KV8_ASSIGN_OR_RETURN(const ops::MatrixPart one, part(name, rows, cols));
  return ops_.load_matrix({&one, 1});
}

Expected<std::unique_ptr<ops::Vector>> TensorSource::norm(const std::string& prefix, std::string_view suffix,
                                                          int64_t size, float offset) {
  if (suffix.empty()) return nullptr;
  const std::string name = fmt::format("{}{}.weight", prefix, suffix);
  KV8_ASSIGN_OR_RETURN(const TensorView tensor, get(name, Shape{size}));
  return ops_.load_vector(name, tensor, offset);
}

std::vector<std::string> TensorSource::unused() const {
  std::vector<std::string> names;
  for (const auto& name : checkpoint_.names()) {
    if (!used_.contains(std::string(name))) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace kv8::models
