#include "ops/cpu/linear.h"

#include <algorithm>

#include "ops/cpu/linear_float.h"
#include "ops/cpu/linear_packed.h"

namespace kv8::ops::cpu {

namespace {

constexpr int64_t kUnitRows = 2 * kPackedUnitRows;  // rows that one thread works on together
constexpr int64_t kTokenTile = 192;  // their activations stay in the second-level cache while weights pass by

int64_t units_of(const WeightPart& part) {
  return (part.rows + kUnitRows - 1) / kUnitRows;
}

}  // namespace

void linear(const CpuMatrix& matrix, const float* x, int64_t tokens, float* out, ThreadPool& pool,
            LinearScratch& scratch) {
  if (tokens == 0) return;
  if (matrix.has_packed()) scratch.quantized.fill(x, tokens, matrix.cols(), pool);
  int64_t units = 0;
  for (const WeightPart& part : matrix.parts()) units += units_of(part);

  // Tasks are (tile of tokens) x (run of units), a few per thread, so that an uneven start evens out.
  const int64_t tiles = (tokens + kTokenTile - 1) / kTokenTile;
  const int64_t tile = (tokens + tiles - 1) / tiles;
  const int64_t wanted_runs = std::max<int64_t>(1, pool.threads() * int64_t{4} / tiles);
  const int64_t runs = std::min(units, std::max<int64_t>(wanted_runs, pool.threads()));
  pool.parallel_for(tiles * runs, [&](int64_t task, int worker) {
    const int64_t run = task % runs;
    const int64_t first_token = task / runs * tile;
    const TokenRange range = {first_token, std::min(tokens, first_token + tile)};
    int64_t begin = units * run / runs;
    const int64_t end = units * (run + 1) / runs;
    LinearProblem problem = {.x = x, .out = out, .bias = matrix.bias(), .out_stride = matrix.rows()};
    std::vector<float>& buffer = scratch.of_thread[static_cast<size_t>(worker)];
    int64_t first_unit = 0;  // of the part
    for (const WeightPart& part : matrix.parts()) {
      const int64_t part_end = first_unit + units_of(part);
      if (begin < end && begin < part_end) {
        const int64_t row_begin = (begin - first_unit) * kUnitRows;
        const int64_t row_end = std::min(part.rows, (std::min(end, part_end) - first_unit) * kUnitRows);
        if (part.packed.empty()) {
          linear_float(part, row_begin, row_end, range, problem, buffer);
        } else {
          linear_packed(part, row_begin, row_end, scratch.quantized, range, problem, buffer);
        }
        begin = std::min(end, part_end);
      }
      first_unit = part_end;
    }
  });
}

}  // namespace kv8::ops::cpu
