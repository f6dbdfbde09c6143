// Activations of single numbers in float32.
#pragma once

#include "ops/cuda/kernels/elementwise.h"

namespace kv8::ops::cuda {

// x / (1 + e^-s), 0 for s far below 0, where e^-s is infinite.
__device__ __forceinline__ float times_sigmoid(float x, float s) {
  return __fdividef(x, 1.0F + __expf(fminf(-s, 87.0F)));
}

// gelu: 0.5 x (1 + tanh u) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
template <Gate kGate>
__device__ __forceinline__ float activate(float x) {
  if constexpr (kGate == Gate::silu) {
    return times_sigmoid(x, x);
  } else {
    return times_sigmoid(x, 1.5957691216F * (x + 0.044715F * x * x * x));
  }
}

}  // namespace kv8::ops::cuda
