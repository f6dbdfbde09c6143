// TensorView: a typed, shaped look at bytes that somebody else owns (a mapped file, a buffer). Always
// contiguous, row-major; shape[rank-1] varies fastest. For block types the last dimension is a whole number
// of blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"

namespace kv8 {

constexpr int kMaxRank = 6;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  static Shape from(std::span<const int64_t> dims);  // at most kMaxRank

  int rank() const { return rank_; }
  int64_t operator[](int axis) const;  // negative counts from the end
  int64_t elements() const;  // the product; callers who build shapes from files check overflow first
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  std::string to_string() const;  // "[320, 64]"
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

struct TensorView {
  DType dtype = DType::f32;
  Shape shape;
  const std::byte* data = nullptr;  // aligned to 1 byte only: a file may place a tensor anywhere
  size_t bytes = 0;

  // Rows and columns of a matrix: the last axis against all others together. A vector is one row.
  int64_t cols() const { return shape.rank() == 0 ? 1 : shape[-1]; }
  int64_t rows() const { return cols() == 0 ? 0 : shape.elements() / cols(); }
};

// Bytes of one row of `cols` numbers. Block types: cols must be a multiple of block_elements.
size_t row_bytes(DType dtype, int64_t cols);

}  // namespace kv8
