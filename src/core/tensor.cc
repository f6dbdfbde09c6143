#include "core/tensor.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/check.h"

namespace kv8 {

Shape::Shape(std::initializer_list<int64_t> dims) {
  *this = from({dims.begin(), dims.size()});
}

Shape Shape::from(std::span<const int64_t> dims) {
  KV8_CHECK(dims.size() <= static_cast<size_t>(kMaxRank), "rank {}", dims.size());
  Shape shape;
  shape.rank_ = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), shape.dims_.begin());
  return shape;
}

int64_t Shape::operator[](int axis) const {
  if (axis < 0) axis += rank_;
  KV8_CHECK(axis >= 0 && axis < rank_, "axis {} of rank {}", axis, rank_);
  return dims_[static_cast<size_t>(axis)];
}

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims()) product *= dim;
  return product;
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(dims(), ", "));
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(dims(), other.dims());
}

size_t row_bytes(DType dtype, int64_t cols) {
  const DTypeInfo& info = dtype_info(dtype);
  KV8_CHECK(cols % info.block_elements == 0, "{} columns of {}", cols, info.name);
  return static_cast<size_t>(cols / info.block_elements) * static_cast<size_t>(info.block_bytes);
}

}  // namespace kv8
