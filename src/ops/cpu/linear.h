// y = x W^T + bias for a matrix of any parts, in parallel.
#pragma once

#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "ops/cpu/weights.h"

namespace kv8::ops::cpu {

// x: [tokens, matrix.cols()], out: [tokens, matrix.rows()], float32. scratch: one per thread of the pool,
// kept between calls.
void linear(const CpuMatrix& matrix, const float* x, int64_t tokens, float* out, ThreadPool& pool,
            std::vector<std::vector<float>>& scratch);

}  // namespace kv8::ops::cpu
