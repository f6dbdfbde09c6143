// The CPU backend of ops::Ops: float32 activations, SIMD by run-time dispatch, one thread pool.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace kv8::ops::cpu {

struct CpuOptions {
  int threads = 0;  // <= 0: as many as the process may use
  // GGUF's quantised weights: multiply unrounded float32 activations, slowly, instead of activations rounded
  // to 8 bits in blocks of 32. KV8_EXACT_ACTIVATIONS=1 sets it too.
  bool exact_activations = false;
};

// The CPU's activations are plain float32 arrays.
inline Activations host_activations(float* data, int64_t rows, int64_t cols) {
  return {reinterpret_cast<std::byte*>(data), rows, cols, cols, DType::f32};
}

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

}  // namespace kv8::ops::cpu
