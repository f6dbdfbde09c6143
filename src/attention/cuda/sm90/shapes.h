// What the kernels for Hopper are cut to, shared by the plan (which counts in these units) and the kernels.
#pragma once

#include "kv8/attention.h"

namespace kv8::attention::cuda::sm90 {

// Decode: rows (query tokens x heads of a group) that share one pass over the keys are wgmma's N.
// More rows than columns are several passes; at head_dim 256 the registers hold no more than 16.
constexpr int decode_columns(int head_dim, int rows) {
  return rows <= 8 ? 8 : rows <= 16 || head_dim == 256 ? 16 : 32;
}

// Stages are 256 * head_dim bytes, in flight or in use: K and V of 128 keys in FP8, one of the two in BF16.
struct DecodeShape {
  int ctas;  // on a multiprocessor
  int stages;
};
constexpr DecodeShape decode_shape(CacheFormat format, int head_dim, int columns) {
  if (head_dim == 256) return {1, 3};
  if (format == CacheFormat::bf16 && columns == 32)
    return head_dim == 64 ? DecodeShape{2, 5} : DecodeShape{1, 6};
  return {2, head_dim == 64 ? 6 : 3};
}

// Prefill: a warpgroup takes 64 rows (tokens x heads of a group), a CTA two or three warpgroups on the same
// tiles.
constexpr int kPrefillRows = 64;
constexpr int prefill_warpgroups(CacheFormat /*format*/, int head_dim) {
  return head_dim == 256 ? 2 : 3;
}
constexpr int prefill_stages(int head_dim) {
  return head_dim == 256 ? 2 : 4;  // a power of two, of K and V of 128 keys in FP8
}

}  // namespace kv8::attention::cuda::sm90
