// How far each way of adding up FP8 products strays from float64, on the attention patterns that decide it: a
// sink, a needle, and nothing of the sort. Synthetic, no model needed; the emulated tensor core is exact.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/thread_pool.h"

namespace kv8::eval {

struct NumericsOptions {
  int64_t max_keys = 131072;  // the longest context; 1,024 at least
  int head_dim = 128;         // a multiple of 32
  int heads = 2;              // independent rows that the errors are taken over; 256 at most
  uint32_t seed = 1;
  // Called after each row: keys of the rows done, and of all rows.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Errors are the root mean square of out - right over that of `right`, all heads together. `right` is float64
// over the stored codes and Q as quantised, so that what is measured is accumulation and P, not the formats
// of K, V, Q.
struct NumericsRow {
  std::string name;  // "diffuse", "sink +12", "sink +16", "needle p=0.5"
  int64_t keys = 0;
  double single = 0.0;
  double two_level = 0.0;
  double tile = 0.0;
  double f32 = 0.0;
};

// Every pattern at 1,024, 8,192, 32,768, 131,072, 524,288 keys, as far as max_keys reaches, and at max_keys.
Expected<std::vector<NumericsRow>> run_numerics(const NumericsOptions& options, ThreadPool& pool);

}  // namespace kv8::eval
