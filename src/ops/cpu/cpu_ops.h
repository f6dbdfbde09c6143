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

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options);

}  // namespace kv8::ops::cpu
