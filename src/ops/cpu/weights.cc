#include "ops/cpu/weights.h"

#include <algorithm>

#include "core/check.h"
#include "numerics/dequantize.h"

namespace kv8::ops::cpu {

namespace {

bool is_weight_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return true;
    default:
      return is_block_type(dtype);
  }
}

Status bind_scales(const MatrixPart& from, WeightPart& part) {
  if (!from.scale) return {};
  if (part.dtype != DType::f8_e4m3 && part.dtype != DType::f8_e5m2) {
    return make_error(ErrorCode::invalid_argument, "{}: a scale for {} weights; only FP8 weights take one",
                      from.name, to_string(part.dtype));
  }
  const Shape& shape = from.scale->shape;
  const int64_t row_blocks = (part.rows + kScaleBlock - 1) / kScaleBlock;
  const int64_t col_blocks = (part.cols + kScaleBlock - 1) / kScaleBlock;
  if (shape.elements() == 1) {
    part.scale_rows = part.rows;
  } else if (shape == Shape{part.rows} || shape == Shape{part.rows, 1}) {
    part.scale_rows = 1;
  } else if (shape == Shape{row_blocks, col_blocks}) {
    part.scale_rows = kScaleBlock;
    part.scale_cols = col_blocks;
  } else {
    return make_error(ErrorCode::invalid_argument,
                      "{}: scale of shape {}; for weights [{}, {}] expected [1], [{}], [{}, 1] or [{}, {}]",
                      from.name, shape.to_string(), part.rows, part.cols, part.rows, part.rows, row_blocks,
                      col_blocks);
  }
  part.scales = widen_tensor(*from.scale);
  return {};
}

Expected<WeightPart> bind_part(const MatrixPart& from) {
  const TensorView& data = from.data;
  if (!is_weight_type(data.dtype)) {
    return make_error(ErrorCode::unsupported, "{}: weights of type {}; expected a float or a GGUF block type",
                      from.name, to_string(data.dtype));
  }
  WeightPart part;
  part.dtype = data.dtype;
  part.data = data.data;
  part.rows = data.rows();
  part.cols = data.cols();
  if (part.rows <= 0 || part.cols <= 0) {
    return make_error(ErrorCode::invalid_argument, "{}: an empty matrix of shape {}", from.name,
                      data.shape.to_string());
  }
  const int block = dtype_info(data.dtype).block_elements;
  if (part.cols % block != 0) {
    return make_error(ErrorCode::invalid_argument, "{}: {} columns of {}; expected a multiple of {}",
                      from.name, part.cols, to_string(data.dtype), block);
  }
  part.row_bytes = row_bytes(data.dtype, part.cols);
  if (data.bytes != part.row_bytes * static_cast<size_t>(part.rows)) {
    return make_error(ErrorCode::invalid_argument, "{}: {} bytes; {} of shape {} takes {}", from.name,
                      data.bytes, to_string(data.dtype), data.shape.to_string(),
                      part.row_bytes * static_cast<size_t>(part.rows));
  }
  KV8_RETURN_IF_ERROR(bind_scales(from, part));
  return part;
}

}  // namespace

Expected<std::unique_ptr<Matrix>> CpuMatrix::load(std::span<const MatrixPart> parts, bool pack,
                                                  ThreadPool& pool) {
  if (parts.empty()) return make_error(ErrorCode::invalid_argument, "a matrix without parts");
  std::vector<WeightPart> bound;
  int64_t rows = 0;
  size_t bytes = 0;
  for (const MatrixPart& from : parts) {
    KV8_ASSIGN_OR_RETURN(WeightPart part, bind_part(from));
    if (part.cols != parts[0].data.cols()) {
      return make_error(ErrorCode::invalid_argument, "{}: {} columns, but {} has {}", from.name, part.cols,
                        parts[0].name, parts[0].data.cols());
    }
    if (pack && is_block_type(part.dtype)) {
      KV8_ASSIGN_OR_RETURN(part.packed, pack_weights(part.dtype, part.data, part.rows, part.cols, pool));
    }
    part.row_begin = rows;
    rows += part.rows;
    bytes += part.row_bytes * static_cast<size_t>(part.rows) + part.scales.size() * sizeof(float);
    bound.push_back(std::move(part));
  }
  std::vector<float> bias;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].bias) continue;
    if (parts[i].bias->shape.elements() != bound[i].rows) {
      return make_error(ErrorCode::invalid_argument, "{}: bias of shape {}; expected [{}]", parts[i].name,
                        parts[i].bias->shape.to_string(), bound[i].rows);
    }
    bias.resize(static_cast<size_t>(rows), 0.0F);
    const std::vector<float> values = widen_tensor(*parts[i].bias);
    std::copy(values.begin(), values.end(), bias.begin() + bound[i].row_begin);
  }
  std::unique_ptr<CpuMatrix> matrix(new CpuMatrix(rows, bound[0].cols, bytes));
  matrix->parts_ = std::move(bound);
  matrix->bias_ = std::move(bias);
  return matrix;
}

bool CpuMatrix::has_packed() const {
  return std::ranges::any_of(parts_, [](const WeightPart& part) { return !part.packed.empty(); });
}

void CpuMatrix::widen_row(int64_t r, float* out) const {
  for (const WeightPart& part : parts_) {
    if (r < part.row_begin + part.rows) return cpu::widen_row(part, r - part.row_begin, out);
  }
  KV8_CHECK(false, "row {} of {}", r, rows());
}

void widen_row(const WeightPart& part, int64_t r, float* out) {
  numerics::dequantize_row(part.dtype, part.row(r), part.cols, out);
  const float* scales = part.row_scales(r);
  if (scales == nullptr) return;
  for (int64_t c = 0; c < part.cols; ++c) out[c] *= scales[part.scale_cols > 1 ? c / kScaleBlock : 0];
}

std::vector<float> widen_tensor(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  const size_t bytes = row_bytes(tensor.dtype, tensor.cols());
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    numerics::dequantize_row(tensor.dtype, tensor.data + static_cast<size_t>(r) * bytes, tensor.cols(),
                             values.data() + r * tensor.cols());
  }
  return values;
}

}  // namespace kv8::ops::cpu
