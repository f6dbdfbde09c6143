// Functions of single numbers over runs of float32: gated activations, soft caps, scaling.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace kv8::ops::cpu {

// out[i] = activation(gate[i]) * up[i]. silu(x) = x / (1 + exp(-x)); gelu_tanh is the tanh approximation of
// GELU. Finite for all finite inputs as far as the product is.
void gated_activation_run(Activation activation, const float* gate, const float* up, int64_t count,
                          float* out);

// x[i] = cap * tanh(x[i] / cap)
void soft_cap_run(float* x, int64_t count, float cap);

void scale_run(float* x, int64_t count, float factor);

}  // namespace kv8::ops::cpu
