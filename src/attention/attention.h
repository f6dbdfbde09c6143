// The attention problem of one layer: plain data, the same for every backend.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/error.h"
#include "kv_cache/layer_cache.h"

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

// Rows of one sequence in a step. Query i (0-based) of the chunk stands at position first_position + i and
// sees the keys at positions [max(0, position - window + 1), position]; they are in the cache already.
struct SequenceChunk {
  int64_t query_begin = 0;  // first row in q and out
  int64_t query_count = 0;
  int64_t first_position = 0;  // of the chunk's first token
  // page_table[p / kPageTokens] is the page that holds position p. Entries of pages that a window has left
  // behind are never read.
  const int32_t* page_table = nullptr;
};

struct AttentionProblem {
  kv_cache::LayerCacheView cache;
  std::span<const SequenceChunk> sequences;

  const float* q = nullptr;  // [rows, q_heads, head_dim], after RoPE; rows q_stride floats apart
  int64_t q_stride = 0;
  float* out = nullptr;  // [rows, q_heads, head_dim], rows out_stride floats apart
  int64_t out_stride = 0;

  int q_heads = 0;              // a multiple of cache.kv_heads; head h reads KV head h / (q_heads / kv_heads)
  float softmax_scale = 0.0F;   // scores = softmax_scale * q.k
  float logit_soft_cap = 0.0F;  // scores = cap * tanh(scores / cap); 0: none
  int64_t window = 0;           // 0: none
  const float* sinks =
      nullptr;  // [q_heads]: a logit beside the scores that takes weight and adds no value; or null
};

}  // namespace kv8::attention
