// Activations rounded to 8 bits, for products with quantised weights: blocks of 32 columns, x = scale * code,
// scale = max |x| / 127, codes in [-127, 127]. The rounding of one number is at most 0.4% of the largest in
// its block (0.2% with a random sign), the same as llama.cpp's, but with the scale in float32.
//
// A block that holds an infinity or a NaN has a NaN for its scale, so that it shows in the product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/thread_pool.h"

namespace kv8::ops::cpu {

struct QuantizedRow {
  const int8_t* codes = nullptr;     // [cols]
  const float* scales = nullptr;     // [cols / 32]
  const float* sums = nullptr;       // [cols / 32]: scale * sum of the block's codes
  const float* half_sums = nullptr;  // [cols / 16]: the same of its halves
};

class QuantizedRows {
 public:
  // cols is a multiple of 32. Memory is kept between calls.
  void fill(const float* x, int64_t rows, int64_t cols, ThreadPool& pool);

  QuantizedRow row(int64_t r) const {
    const std::byte* at = data_.data() + static_cast<size_t>(r) * row_bytes_;
    const auto* floats = reinterpret_cast<const float*>(at + cols_);
    const int64_t blocks = cols_ / 32;
    return {reinterpret_cast<const int8_t*>(at), floats, floats + blocks, floats + 2 * blocks};
  }

 private:
  std::vector<std::byte> data_;  // rows of: codes, scales, sums, half sums
  size_t row_bytes_ = 0;
  int64_t cols_ = 0;
};

}  // namespace kv8::ops::cpu
