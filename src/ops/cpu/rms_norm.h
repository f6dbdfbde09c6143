// RMS norm of rows of float32: out = x / sqrt(mean(x^2) + epsilon) * weight.
#pragma once

#include <cstdint>

namespace kv8::ops::cpu {

// One row. out may be x.
void rms_norm_row(const float* x, const float* weight, float epsilon, int64_t cols, float* out);

// residual += post_weight ? rms_norm(x, post_weight) : x;  out = rms_norm(residual, weight). out may be x.
void add_rms_norm_row(float* residual, const float* x, const float* post_weight, const float* weight,
                      float epsilon, int64_t cols, float* out);

}  // namespace kv8::ops::cpu
