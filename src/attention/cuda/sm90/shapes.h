// What the kernels for Hopper are cut to, shared by the plan (which counts in these units) and the kernels.
#pragma once

namespace kv8::attention::cuda::sm90 {

// Decode: rows (query tokens x heads of a group) that share one pass over the keys are wgmma's N.
// More rows than columns are several passes; at head_dim 256 the registers hold no more than 16.
constexpr int decode_columns(int head_dim, int rows) {
  return rows <= 8 ? 8 : rows <= 16 || head_dim == 256 ? 16 : 32;
}
constexpr int decode_ctas_per_multiprocessor(int head_dim) {
  return head_dim == 256 ? 1 : 2;
}
// Tiles (K and V of 128 keys) in flight or in use.
constexpr int decode_stages(int head_dim) {
  return head_dim == 64 ? 6 : 3;
}

// Prefill: a warpgroup takes 64 rows (tokens x heads of a group), a CTA two or three warpgroups on the same
// tiles.
constexpr int kPrefillRows = 64;
constexpr int prefill_warpgroups(int head_dim) {
  return head_dim == 256 ? 2 : 3;
}
constexpr int prefill_stages(int head_dim) {
  return head_dim == 256 ? 2 : 4;  // a power of two
}

}  // namespace kv8::attention::cuda::sm90
