// The float32 kernels: a block of rows against a run of keys, with online softmax over tiles.
//
// Two shapes of the same arithmetic. With few rows (decode) the SIMD lanes run along head_dim and the cache
// is widened in registers on its way into the multiply-adds. With many rows (prefill) the lanes run along the
// rows: a tile is widened once to scratch, its numbers are broadcast, and softmax needs no step across lanes.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cpu/row_block.h"

namespace kv8::attention::cpu {

constexpr int kF32RowCapacity = 48;  // rows of a block: a multiple of every target's lanes
constexpr int kFewRows = 4;          // up to here the lanes run along head_dim

// The state of online softmax over the keys seen so far. The weight of a key is
// e^(score - max), sum is the sum of weights, acc [rows, head_dim] the weighted sum of values (v_scale not
// yet applied). A row that has seen no key has max kNoKey, and sum and acc 0.
struct PartialRows {
  float* max = nullptr;
  float* sum = nullptr;
  float* acc = nullptr;
};

constexpr float kNoKey = -1e30F;  // finite, so that kNoKey - kNoKey is 0; no real score is as low

// What a worker needs besides. Grows to the largest block it has met.
struct F32Scratch {
  std::vector<float> floats;
  float* reserve(size_t count) {
    if (floats.size() < count + kAlignment) floats.resize(count + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(floats.data());
    return floats.data() + (kAlignment - address / sizeof(float) % kAlignment) % kAlignment;
  }

 private:
  static constexpr size_t kAlignment = 16;  // floats: one cache line
};

// The keys [first_key, end_key) of tiles [first_tile, end_tile) of `block`; overwrites `out`.
void attend_f32(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                const PartialRows& out);

}  // namespace kv8::attention::cpu
