// Weights as the CPU backend holds them: the parts of a matrix, each in its own format. Float types stay
// where they lie in the file; GGUF's quantised types are interleaved in memory (packed_weights.h), unless
// activations are to stay exact. Nothing is widened here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/cpu/packed_weights.h"
#include "ops/ops.h"

namespace kv8::ops::cpu {

constexpr int64_t kScaleBlock = 128;  // FP8 block scales cover 128 x 128 numbers

// Rows [row_begin, row_begin + rows) of a matrix, all of one format.
struct WeightPart {
  DType dtype = DType::f32;
  const std::byte* data = nullptr;  // [rows] of row_bytes each, of any alignment
  int64_t row_begin = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  size_t row_bytes = 0;

  // FP8: number (r, c) is stored * scales[(r / scale_rows) * scale_cols + (scale_cols > 1 ? c / kScaleBlock :
  // 0)].
  std::vector<float> scales;  // empty: unscaled
  int64_t scale_rows = 1;     // rows that share a row of scales
  int64_t scale_cols = 1;     // scales in such a row

  PackedWeights packed;  // empty: products read `data`

  const std::byte* row(int64_t r) const { return data + static_cast<size_t>(r) * row_bytes; }
  const float* row_scales(int64_t r) const {
    return scales.empty() ? nullptr : scales.data() + r / scale_rows * scale_cols;
  }
};

class CpuMatrix : public Matrix {
 public:
  // Errors: invalid_argument for no parts, parts of different widths, integer types, scales or biases of a
  // shape that fits nothing, all with the part's name.
  // pack: see above.
  static Expected<std::unique_ptr<Matrix>> load(std::span<const MatrixPart> parts, bool pack,
                                                ThreadPool& pool);

  std::span<const WeightPart> parts() const { return parts_; }
  bool has_packed() const;                                                      // some part is packed
  const float* bias() const { return bias_.empty() ? nullptr : bias_.data(); }  // [rows], or null

  // Row r as float32 [cols], scales applied; the bias isn't part of it.
  void widen_row(int64_t r, float* out) const;

 private:
  CpuMatrix(int64_t rows, int64_t cols, size_t bytes) : Matrix(rows, cols, bytes) {}

  std::vector<WeightPart> parts_;
  std::vector<float> bias_;
};

class CpuVector : public Vector {
 public:
  explicit CpuVector(std::vector<float> values)
      : Vector(static_cast<int64_t>(values.size())), values_(std::move(values)) {}
  const float* data() const { return values_.data(); }

 private:
  std::vector<float> values_;
};

// Row r of a part, widened and scaled.
void widen_row(const WeightPart& part, int64_t r, float* out);

// A small tensor of any float type as float32.
std::vector<float> widen_tensor(const TensorView& tensor);

}  // namespace kv8::ops::cpu
