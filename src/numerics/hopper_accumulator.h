// What Hopper's FP8 tensor core does to a sum: one wgmma step over k = 32, D = A * B + C, bit for bit as
// measured on an H200 (docs/numerics.md has the formula).
//
// The fast form works on many columns of one row at a time: operands are widened once into a value and an
// exponent per code, and reused for every product they take part in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kv8::numerics {

constexpr int kHopperStep = 32;          // products that one step adds to C
constexpr int kHopperMantissaBits = 13;  // what the tensor core's accumulator keeps after the leading bit

// One output element of one step, by the definition, with integers: c + sum of a[i] * b[i], i < 32. a, b:
// e4m3 codes. A NaN operand gives NaN. c is finite.
float hopper_step(const uint8_t* a, const uint8_t* b, float c);

// A row operand, widened: `count` codes, a multiple of 32.
class HopperRow {
 public:
  void assign(const uint8_t* codes, int count);
  int size() const { return static_cast<int>(values_.size()); }

 private:
  friend class HopperMatrix;
  std::vector<float> values_;      // code's value * 2^-40; see hopper_accumulator.cc
  std::vector<int8_t> exponents_;  // of the operand; sentinels for zero and NaN
  std::vector<uint8_t> nonzero_;   // [size / 32]: whether a step has any non-zero operand
};

// A matrix operand [rows, columns], rows along k. Columns are padded with zeros to a multiple of 64.
class HopperMatrix {
 public:
  // Codes [rows, columns], rows `stride` codes apart. rows is a multiple of 32.
  void assign(const uint8_t* codes, int rows, int columns, int64_t stride);
  // The transpose of codes [columns, rows]: keys as they lie in the cache, seen as K^T.
  void assign_transposed(const uint8_t* codes, int rows, int columns, int64_t stride);

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  int padded_columns() const { return padded_columns_; }

  // For each column j: c[j] = hopper_step(a[k..k+31], rows k..k+31 of column j, c[j]). c: padded_columns()
  // floats, each 0 or of a magnitude in [2^-60, 2^60]; a smaller one counts as 0.
  void step(const HopperRow& a, int k, float* c) const;

 private:
  void resize(int rows, int columns);

  int rows_ = 0;
  int columns_ = 0;
  int padded_columns_ = 0;
  bool has_nan_ = false;
  std::vector<float> values_;
  std::vector<int8_t> exponents_;
};

}  // namespace kv8::numerics
