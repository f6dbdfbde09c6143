// Which of the compiled SIMD instruction sets the CPU kernels use.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace kv8::numerics {

// The best one that this machine has, unless limit_simd() said less: "AVX3" (AVX-512), "AVX2", "SSE4", "NEON"
// and so on, by Highway's names.
std::string simd_name();

// Rules out everything better than `name` (in either case). Call it before any kernel runs. An error names
// what this machine has.
Status limit_simd(std::string_view name);

// limit_simd() with the environment variable KV8_SIMD, where it is set.
Status limit_simd_by_environment();

}  // namespace kv8::numerics
