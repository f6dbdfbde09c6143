// The attention problem of one layer on the CPU: plain data. (The CUDA backend's is include/kv8/attention.h.)
#pragma once

#include <cstdint>
#include <span>

#include "attention/cpu/layer_cache.h"

namespace kv8::attention::cpu {

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
  LayerCacheView cache;
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

}  // namespace kv8::attention::cpu
