// The small kernels of a step: embedding, gathering of rows, gated activations, logits as float32.
#pragma once

#include "ops/cuda/kernels/launch.h"

namespace kv8::ops::cuda {

// out[r] = table[tokens[r]] * scale, float32: the residual stream is float32, since it is a sum of two
// addends a layer, and rounding it to BF16 each time would cost more accuracy than all else in a step. table
// [vocab][cols] bf16, f16 or f32; tokens [rows], a token outside of [0, vocab) gives a row of zeros, so that
// the rows that pad a step to its shape can carry -1; cols a multiple of 8.
Status embed(cudaStream_t stream, const void* table, DType table_type, int64_t vocab, const int32_t* tokens,
             float scale, int64_t rows, int64_t cols, float* out);

// out[i] = x[rows[i]] for i < count; an index outside of [0, x_rows) gives zeros. x [x_rows][row_bytes], any
// type, row_bytes a multiple of 16.
Status gather_rows(cudaStream_t stream, const void* x, int64_t x_rows, const int32_t* rows, int64_t count,
                   int64_t row_bytes, void* out);

enum class Gate : uint8_t { silu, gelu_tanh };

// out[r][i] = gate(x[r][i]) * x[r][n + i]; x [rows][2n] bf16, out [rows][n] bf16, n a multiple of 8.
Status gated_activation(cudaStream_t stream, Gate gate, const void* x, int64_t rows, int64_t n, void* out);

// out = cap * tanh(x / cap), or x where cap is 0; x bf16 or f32 [count], out float32 (may be x if that is
// float32), count a multiple of 8.
Status soft_cap(cudaStream_t stream, const void* x, DType x_type, int64_t count, float cap, float* out);

}  // namespace kv8::ops::cuda
