#include "models/tensor_source.h"

#include <algorithm>
#include <vector>

#include <fmt/ranges.h>

#include "numerics/dequantize.h"

namespace kv8::models {

namespace {

constexpr std::string_view kScaleSuffixes[] = {".weight_scale", ".weight_scale_inv"};
constexpr int64_t kScaleBlock = 128;  // rows and columns that share a scale
constexpr size_t kShown = 4;          // names in a message

bool is_float(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

bool is_fp8(DType dtype) {
  return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2;
}

std::string first_names(const std::vector<std::string_view>& names) {
  const auto shown = static_cast<std::ptrdiff_t>(std::min(kShown, names.size()));
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + shown, ", "),
                     names.size() > kShown ? ", ..." : "");
}

Status check_elements(const TensorView& tensor, std::string_view name, const NumberRange& range,
                      std::string_view source) {
  if (!is_float(tensor.dtype)) {
    return make_error(ErrorCode::unsupported, "{}: {}: type {}; expected f64, f32, f16 or bf16", source, name,
                      to_string(tensor.dtype));
  }
  const int64_t count = tensor.shape.elements();
  std::vector<float> values(static_cast<size_t>(count));
  numerics::dequantize_row(tensor.dtype, tensor.data, count, values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    if (range.contains(values[i])) continue;
    return make_error(ErrorCode::corrupt_data, "{}: {}: element {} is {}; expected {} to {}", source, name, i,
                      values[i], range.low, range.high);
  }
  return {};
}

}  // namespace

Expected<TensorView> TensorSource::get(const std::string& name, const Shape& shape) {
  KV8_ASSIGN_OR_RETURN(TensorView tensor, checkpoint_.tensor(name));
  used_.insert(name);
  if (tensor.shape != shape) {
    return make_error(ErrorCode::corrupt_data, "{}: tensor {}: shape {}, but the config asks for {}",
                      checkpoint_.config_source(), name, tensor.shape.to_string(), shape.to_string());
  }
  return tensor;
}

Expected<TensorView> TensorSource::vector(const std::string& name, int64_t size, const NumberRange& range) {
  KV8_ASSIGN_OR_RETURN(TensorView tensor, get(name, Shape{size}));
  KV8_RETURN_IF_ERROR(check_elements(tensor, name, range, source()));
  return tensor;
}

Expected<TensorView> TensorSource::scale_of(const std::string& name, int64_t rows, int64_t cols) {
  std::vector<std::string> there;
  for (const std::string_view suffix : kScaleSuffixes) {
    if (has(fmt::format("{}{}", name, suffix))) there.push_back(fmt::format("{}{}", name, suffix));
  }
  if (there.empty()) {
    std::vector<std::string_view> beside;
    for (const std::string_view other : checkpoint_.names()) {
      const bool is_beside = other.starts_with(name) && other.substr(name.size()).starts_with('.');
      if (is_beside && other != name + ".weight" && other != name + ".bias") beside.push_back(other);
    }
    return make_error(ErrorCode::not_found,
                      "{}: {}.weight: FP8 weights without a scale; expected {}{} or {}{}{}", source(), name,
                      name, kScaleSuffixes[0], name, kScaleSuffixes[1],
                      beside.empty() ? "" : fmt::format(". Beside it are {}", first_names(beside)));
  }
  if (there.size() > 1) {
    return make_error(ErrorCode::corrupt_data, "{}: {}.weight: two scales, {}", source(), name,
                      fmt::join(there, " and "));
  }
  const std::string& found = there.front();
  KV8_ASSIGN_OR_RETURN(const TensorView scale, checkpoint_.tensor(found));
  used_.insert(found);
  const Shape blocks{(rows + kScaleBlock - 1) / kScaleBlock, (cols + kScaleBlock - 1) / kScaleBlock};
  const Shape& shape = scale.shape;
  if (shape.elements() != 1 && shape != Shape{rows} && shape != Shape{rows, 1} && shape != blocks) {
    return make_error(
        ErrorCode::unsupported,
        "{}: {}: shape {}; for weights [{}, {}] expected [1], [{}], [{}, 1] or {}, one for {} x "
        "{} weights",
        source(), found, shape.to_string(), rows, cols, rows, rows, blocks.to_string(), kScaleBlock,
        kScaleBlock);
  }
  KV8_RETURN_IF_ERROR(check_elements(scale, found, kScaleRange, source()));
  return scale;
}

Expected<ops::MatrixPart> TensorSource::part(const std::string& name, int64_t rows, int64_t cols,
                                             bool has_bias) {
  ops::MatrixPart part;
  part.name = name;
  KV8_ASSIGN_OR_RETURN(part.data, get(name + ".weight", Shape{rows, cols}));
  if (is_fp8(part.data.dtype)) {
    KV8_ASSIGN_OR_RETURN(part.scale, scale_of(name, rows, cols));
  }
  if (has_bias) {
    KV8_ASSIGN_OR_RETURN(part.bias, vector(name + ".bias", rows));
  }
  return part;
}

Expected<std::unique_ptr<ops::Matrix>> TensorSource::matrix(const std::string& name, int64_t rows,
                                                            int64_t cols, bool has_bias) {
  KV8_ASSIGN_OR_RETURN(const ops::MatrixPart one, part(name, rows, cols, has_bias));
  return ops_.load_matrix({&one, 1});
}

Expected<std::unique_ptr<ops::Vector>> TensorSource::norm(const std::string& prefix, std::string_view suffix,
                                                          int64_t size, float offset) {
  if (suffix.empty()) return nullptr;
  const std::string name = fmt::format("{}{}.weight", prefix, suffix);
  KV8_ASSIGN_OR_RETURN(const TensorView tensor, vector(name, size));
  return ops_.load_vector(name, tensor, offset);
}

void TensorSource::ignore(std::string_view beginning) {
  for (const std::string_view name : checkpoint_.names()) {
    if (name.starts_with(beginning)) used_.emplace(name);
  }
}

Status TensorSource::refuse_unread(std::span<const Leftover> family) const {
  std::vector<std::string_view> unread;
  for (const std::string_view name : checkpoint_.names()) {
    if (!used_.contains(name) && !is_leftover(name, family)) unread.push_back(name);
  }
  if (unread.empty()) return {};
  return make_error(
      ErrorCode::corrupt_data,
      "{}: {} of its tensors belong to nothing that {} describes: {}. Without them the answers "
      "would be wrong: either the config is another model's (its number of layers, biases, tied "
      "embeddings), or the tensors were renamed",
      source(), unread.size(), checkpoint_.config_source(), first_names(unread));
}

}  // namespace kv8::models
