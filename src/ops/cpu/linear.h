// y = x W^T + bias for a matrix of any parts, in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "ops/cpu/quantized_rows.h"
#include "ops/cpu/weights.h"

namespace kv8::ops::cpu {

// Memory kept between products: a buffer per thread of the pool, and the rounded activations.
struct LinearScratch {
  explicit LinearScratch(int threads) : of_thread(static_cast<size_t>(threads)) {}
  std::vector<std::vector<float>> of_thread;
  QuantizedRows quantized;
};

// x: [tokens, matrix.cols()], out: [tokens, matrix.rows()], float32.
void linear(const CpuMatrix& matrix, const float* x, int64_t tokens, float* out, ThreadPool& pool,
            LinearScratch& scratch);

}  // namespace kv8::ops::cpu
