// What every backend's attention shares: the names of the ways to add up.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/error.h"

namespace kv8::attention {

// How products with FP8 operands are added up (docs/numerics.md).
enum class Accumulate : uint8_t {
  f32,        // K and V widened exactly, Q and P unquantised, float32 arithmetic: the CPU's default
  tile,       // Hopper FP8, two levels in QK^T and PV, P scaled by its own tile's maximum: the GPU's default
  two_level,  // Hopper FP8, tile sums to float32, P scaled by the running maximum
  single,     // Hopper FP8, one 13-bit accumulator over all keys: to study, never to use
  exact,      // K and V widened exactly, float64: the reference
};

std::string_view to_string(Accumulate mode);
Expected<Accumulate> accumulate_from(std::string_view name);  // "f32", "tile", "two-level", "single", "exact"

}  // namespace kv8::attention
