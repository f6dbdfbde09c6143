#include "ops/cpu/linear.h"

#include <algorithm>

#include "ops/cpu/linear_float.h"

namespace kv8::ops::cpu {

void linear(const CpuMatrix& matrix, const float* x, int64_t tokens, float* out, ThreadPool& pool,
            std::vector<std::vector<float>>& scratch) {
  const LinearProblem problem = {
      .x = x, .out = out, .bias = matrix.bias(), .tokens = tokens, .out_stride = matrix.rows()};
  for (const WeightPart& part : matrix.parts()) {
    // A few tasks per thread, so that an uneven start evens out.
    const int64_t share = part.rows / (pool.threads() * int64_t{4}) + 1;
    const int64_t rows_per_task = (std::min<int64_t>(share, 256) + 15) / 16 * 16;
    pool.parallel_for((part.rows + rows_per_task - 1) / rows_per_task, [&](int64_t task, int worker) {
      const int64_t begin = task * rows_per_task;
      linear_float(part, begin, std::min(part.rows, begin + rows_per_task), problem,
                   scratch[static_cast<size_t>(worker)]);
    });
  }
}

}  // namespace kv8::ops::cpu
