// What flows between the operations of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace kv8::ops {

// A matrix [rows, cols] in the backend's memory; row r belongs to token r of the step. Rows lie `stride`
// elements apart.
struct Activations {
  std::byte* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // >= cols
  DType dtype = DType::f32;

  Activations first_rows(int64_t count) const { return {data, count, cols, stride, dtype}; }
  // The same memory as a narrower matrix without gaps: buffers are as wide as their widest user.
  Activations view(int64_t row_count, int64_t col_count) const {
    return {data, row_count, col_count, col_count, dtype};
  }
};

// How exact a buffer has to be. wide: at least float32 (the residual stream, logits). narrow: the type that a
// backend's products take, float32 on the CPU, bfloat16 on a GPU.
enum class Width : uint8_t { narrow, wide };

enum class Activation : uint8_t { silu, gelu_tanh };

}  // namespace kv8::ops
