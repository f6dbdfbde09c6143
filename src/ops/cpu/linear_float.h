// y = x W^T for weights of any type in float32: the weights are widened exactly, products and sums are
// float32.
//
// Each output is one dot product, added up column by column with one rounding a step (a fused multiply-add),
// as BLAS libraries do it: vectors run along the rows of the weights, which are transposed in small panels
// for it. The order is the same whatever the number of rows of x and however the work is split: a row's
// result doesn't depend on the rest of its batch, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/weights.h"

namespace kv8::ops::cpu {

struct LinearProblem {
  const float* x = nullptr;     // [tokens, cols]
  float* out = nullptr;         // [tokens, out_stride]; column r is row r of the matrix
  const float* bias = nullptr;  // [rows of the matrix], or null
  int64_t out_stride = 0;
};

struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Rows [begin, end) of `part` for some of the tokens. scratch is the calling thread's own.
void linear_float(const WeightPart& part, int64_t begin, int64_t end, TokenRange tokens,
                  const LinearProblem& problem, std::vector<float>& scratch);

}  // namespace kv8::ops::cpu
