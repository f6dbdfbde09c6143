// RMS norm of rows, with the addition to the residual stream before it: y = x / sqrt(mean(x^2) + epsilon) *
// w.
//
// Sums and products are float32; a row's sum is formed in one fixed order whatever the number of rows, so
// that a row's result doesn't depend on its neighbours. Weights are float32 with any offset already added.
#pragma once

#include "ops/cuda/kernels/launch.h"

namespace kv8::ops::cuda {

constexpr int64_t kLargestNormedRow = 16384;  // columns; a multiple of 8

// out [rows][cols] bf16 = rms_norm(x) of x [rows][cols] float32 or bf16. weight [cols].
Status rms_norm(cudaStream_t stream, const void* x, DType x_type, const float* weight, float epsilon,
                int64_t rows, int64_t cols, void* out);

// residual += post_weight ? rms_norm(x, post_weight) : x;  out = rms_norm(residual, weight).
// residual float32, x bf16 or float32, out bf16, each [rows][cols]. out may be null: only the addition.
Status add_rms_norm(cudaStream_t stream, float* residual, const void* x, DType x_type,
                    const float* post_weight, const float* weight, float epsilon, int64_t rows, int64_t cols,
                    void* out);

}  // namespace kv8::ops::cuda
