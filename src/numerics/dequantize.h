// Any row of any tensor, widened to float32: the reference that faster kernels are held to, and the slow path
// of whatever has none. Scalar, one rounding per arithmetic step, the same on every machine.
//
// A block of a GGUF type stands for x = d * q, or x = d * q - m, with d and m in float16, multiplied by small
// integer scales of its sub-blocks in the K types. d and m are widened, then each product and the difference
// are rounded to float32, in that order; so do the Python package gguf and llama.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace kv8::numerics {

// row: row_bytes(dtype, cols) bytes, of any alignment. out: cols floats. cols is a multiple of the type's
// block. Exact for F32, F16, BF16, both FP8 types and the integers up to 16 bits; F64 and wider integers are
// rounded to nearest. FP8 codes come out unscaled: their scales are tensors of their own.
void dequantize_row(DType dtype, const std::byte* row, int64_t cols, float* out);

}  // namespace kv8::numerics
