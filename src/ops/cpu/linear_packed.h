// y = x W^T for packed quantised weights and activations rounded to 8 bits: integer products within a
// sub-block of the weights, float32 across sub-blocks.
//
// Each output is added up in the order of the columns by the same operations whatever the number of rows of x
// and however the work is split: a row's result doesn't depend on the rest of its batch, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/cpu/linear_float.h"
#include "ops/cpu/packed_weights.h"
#include "ops/cpu/quantized_rows.h"

namespace kv8::ops::cpu {

constexpr int64_t kPackedUnitRows = 2 * kPanelRows;  // rows that are worked on together

// Rows [begin, end) of `part`, begin a multiple of kPackedUnitRows; x holds problem.x
// rounded.
void linear_packed(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRows& x,
                   TokenRange tokens, const LinearProblem& problem, std::vector<float>& scratch);

}  // namespace kv8::ops::cpu
