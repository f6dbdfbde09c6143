// Rotary position embedding: the angles of a step's rows, and the rotation of a head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "ops/ops.h"

namespace kv8::ops::cpu {

// cos and sin of every (row, frequency) of a step, computed once and used by all layers with that Rope. As
// the checkpoints were trained: position and frequency are multiplied in float32.
struct RopeTable {
  int64_t pairs = 0;       // rotated dims / 2
  std::vector<float> cos;  // [rows, pairs], times the magnitude
  std::vector<float> sin;

  void fill(const Rope& rope, std::span<const int64_t> positions, ThreadPool& pool);
};

// Rotates the first 2 * pairs numbers of a head in place. cos, sin: [pairs].
void rotate_head(float* head, const float* cos, const float* sin, int64_t pairs, bool interleaved);

}  // namespace kv8::ops::cpu
