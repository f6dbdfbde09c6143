// Random weights of any type, and what they stand for in float64.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "numerics/dequantize.h"
#include "numerics/half.h"
#include "ops/ops.h"

namespace kv8::test {

struct RandomMatrix {
  std::vector<std::byte> bytes;
  std::vector<float> scale;
  Shape scale_shape;
  std::vector<float> bias;
  DType dtype = DType::f32;
  Shape shape;

  TensorView view() const {
    return {.dtype = dtype, .shape = shape, .data = bytes.data(), .bytes = bytes.size()};
  }

  ops::MatrixPart part(const std::string& name = "test.weight") const {
    ops::MatrixPart part{.name = name, .data = view(), .scale = {}, .bias = {}};
    if (!scale.empty()) part.scale = float_view(scale, scale_shape);
    if (!bias.empty()) part.bias = float_view(bias, Shape{static_cast<int64_t>(bias.size())});
    return part;
  }
  static TensorView float_view(const std::vector<float>& values, Shape shape) {
    return {.dtype = DType::f32,
            .shape = shape,
            .data = reinterpret_cast<const std::byte*>(values.data()),
            .bytes = values.size() * sizeof(float)};
  }

  // What row r stands for.
  std::vector<double> row(int64_t r) const {
    const int64_t cols = shape[1];
    std::vector<float> widened(static_cast<size_t>(cols));
    numerics::dequantize_row(dtype, bytes.data() + static_cast<size_t>(r) * row_bytes(dtype, cols), cols,
                             widened.data());
    std::vector<double> values(widened.begin(), widened.end());
    if (scale.empty()) return values;
    for (int64_t c = 0; c < cols; ++c) values[static_cast<size_t>(c)] *= scale_of(r, c);
    return values;
  }
  double scale_of(int64_t r, int64_t c) const {
    if (scale.size() == 1) return scale[0];
    if (scale.size() == static_cast<size_t>(shape[0])) return scale[static_cast<size_t>(r)];
    return scale[static_cast<size_t>(r / 128 * scale_shape[1] + c / 128)];
  }
};

enum class ScaleKind { none, tensor, row, block };

inline std::vector<float> random_floats(size_t count, std::mt19937& random, float spread = 1.0F) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Copies the float16 scales (d and m) of every block.
inline void restore_scales(DType dtype, const RandomMatrix& from, RandomMatrix& to) {
  const auto block = static_cast<size_t>(dtype_info(dtype).block_bytes);
  size_t offset = 0;
  size_t bytes = 2;
  if (dtype == DType::q4_1 || dtype == DType::q5_1 || dtype == DType::q4_k || dtype == DType::q5_k) bytes = 4;
  if (dtype == DType::q2_k) {
    offset = 80;
    bytes = 4;
  }
  if (dtype == DType::q3_k) offset = 108;
  if (dtype == DType::q6_k) offset = 208;
  for (size_t at = 0; at < from.bytes.size(); at += block) {
    std::memcpy(to.bytes.data() + at + offset, from.bytes.data() + at + offset, bytes);
  }
}

// Block types: random codes; the float16 scales d (and m) are drawn so that weights are of order one.
inline RandomMatrix random_matrix(DType dtype, int64_t rows, int64_t cols, std::mt19937& random,
                                  ScaleKind scales = ScaleKind::none, bool bias = false) {
  RandomMatrix matrix;
  const size_t bytes = row_bytes(dtype, cols) * static_cast<size_t>(rows);
  matrix.bytes.resize(bytes);
  auto* data = reinterpret_cast<uint8_t*>(matrix.bytes.data());
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(random());
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const auto put_f16 = [&](uint8_t* at, float value) {
    const uint16_t code = numerics::float_to_f16(value);
    std::memcpy(at, &code, sizeof(code));
  };
  const auto each_block = [&](auto body) {
    const auto block = static_cast<size_t>(dtype_info(dtype).block_bytes);
    for (size_t at = 0; at < bytes; at += block) body(data + at);
  };
  switch (dtype) {
    case DType::f32:
      for (size_t i = 0; i < bytes; i += 4) {
        const float value = normal(random);
        std::memcpy(data + i, &value, sizeof(value));
      }
      break;
    case DType::bf16:
      for (size_t i = 0; i < bytes; i += 2) {
        const uint16_t code = numerics::float_to_bf16(normal(random));
        std::memcpy(data + i, &code, sizeof(code));
      }
      break;
    case DType::f16:
      for (size_t i = 0; i < bytes; i += 2) put_f16(data + i, normal(random));
      break;
    case DType::f8_e4m3:  // any code but NaN
      for (size_t i = 0; i < bytes; ++i) data[i] = (data[i] & 0x7F) == 0x7F ? 0x35 : data[i];
      break;
    case DType::f8_e5m2:  // finite
      for (size_t i = 0; i < bytes; ++i) data[i] = (data[i] & 0x7C) == 0x7C ? 0x3A : data[i];
      break;
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
      each_block([&](uint8_t* block) { put_f16(block, 0.05F * normal(random)); });
      break;
    case DType::q4_1:
    case DType::q5_1:
      each_block([&](uint8_t* block) {
        put_f16(block, 0.05F * normal(random));
        put_f16(block + 2, normal(random));
      });
      break;
    case DType::q2_k:
      each_block([&](uint8_t* block) {
        put_f16(block + 80, 0.05F * normal(random));
        put_f16(block + 82, 0.05F * normal(random));
      });
      break;
    case DType::q3_k:
      each_block([&](uint8_t* block) { put_f16(block + 108, 0.01F * normal(random)); });
      break;
    case DType::q4_k:
    case DType::q5_k:
      each_block([&](uint8_t* block) {
        put_f16(block, 0.002F * normal(random));
        put_f16(block + 2, 0.02F * normal(random));
      });
      break;
    case DType::q6_k:
      each_block([&](uint8_t* block) { put_f16(block + 208, 0.0005F * normal(random)); });
      break;
    default:
      break;
  }
  matrix.shape = Shape{rows, cols};
  matrix.dtype = dtype;

  std::uniform_real_distribution<float> positive(0.002F, 0.02F);
  const auto draw_scales = [&](Shape shape) {
    matrix.scale_shape = shape;
    matrix.scale.resize(static_cast<size_t>(shape.elements()));
    for (float& value : matrix.scale) value = positive(random);
  };
  if (scales == ScaleKind::tensor) draw_scales(Shape{1});
  if (scales == ScaleKind::row) draw_scales(Shape{rows, 1});
  if (scales == ScaleKind::block) draw_scales(Shape{(rows + 127) / 128, (cols + 127) / 128});
  if (bias) matrix.bias = random_floats(static_cast<size_t>(rows), random);
  return matrix;
}

}  // namespace kv8::test
