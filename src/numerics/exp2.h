// 2^x for spans, on the widest SIMD unit the machine has. Every mode of attention takes its exponentials from
// the polynomial behind it (exp2-inl.h), so that they agree among themselves.
#pragma once

#include <cstddef>

namespace kv8::numerics {

// out[i] = 2^x[i] for x[i] <= 127. Relative error below 1.5 ulp (2e-7) where the result is a normal number; 0
// below x = -126. NaN stays NaN. out may be x.
void exp2_span(const float* x, size_t count, float* out);

}  // namespace kv8::numerics
