// GGUF's quantised weights, interleaved so that one SIMD register holds the same columns of several rows.
//
// clang-format off
// A panel is 8 rows. It is a run of super-blocks (the type's own blocks, 32 or 256 columns), each
//   [8 x float16 d][8 x float16 m]      m: only types with minima
//   then for every 32 columns: [sub-block scales][codes].
// A quad is 4 consecutive columns of 8 rows: 32 bytes, byte 4 * row + column. The 8 quads of 32 columns are
// kept in the type's own number of bits (kBits):
//   4        4 x 32 bytes: quad j in the low nibbles of vector j, quad j + 4 in its high nibbles
//   5        the 4 bits as above, then 32 bytes: bit q is the fifth bit of quad q
//   6        the 4 bits as above, then 2 x 32 bytes: bits 2k, 2k+1 of vector v are the upper two of quad 4v + k
//   2        2 x 32 bytes: bits 2k, 2k+1 of vector v are quad 4v + k
//   3        the 2 bits as above, then 32 bytes: bit q is the third bit of quad q
//   8        8 x 32 bytes, signed
// Sub-block scales of 32 columns: Q4_K, Q5_K: [8 x u8 scale][8 x u8 minimum]; Q2_K: [2][8] bytes, scale in
// the low nibble and minimum in the high one; Q3_K, Q6_K: [2][8] x i8. So 6-bit scales take 8 bits here
// (Q3_K, Q4_K, Q5_K grow by 0.125 bits per weight); all else is the file's very bits. Rows beyond the last
// are zeros.
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "ops/cpu/lazy_memory.h"

namespace kv8::ops::cpu {

constexpr int kPanelRows = 8;
constexpr int kGroupCols = 32;  // columns that share one scale of the activations

struct PackedType {
  int bits = 0;
  int sub_columns = 32;       // columns of one weight scale: 32 or 16
  bool has_minima = false;    // float16 m
  int offset = 0;             // value = scale * (code - offset); 0 for types with minima and for Q8_0
  int groups_per_super = 1;   // 8 for the K types
  int group_scale_bytes = 0;  // sub-block scales of a group of 32 columns
  int group_code_bytes() const { return bits * kGroupCols; }
  int header_bytes() const { return has_minima ? 32 : 16; }
  int super_bytes() const {
    return header_bytes() + groups_per_super * (group_scale_bytes + group_code_bytes());
  }
};

constexpr PackedType packed_type(DType dtype) {
  switch (dtype) {
    case DType::q4_0:
      return {.bits = 4, .offset = 8};
    case DType::q4_1:
      return {.bits = 4, .has_minima = true};
    case DType::q5_0:
      return {.bits = 5, .offset = 16};
    case DType::q5_1:
      return {.bits = 5, .has_minima = true};
    case DType::q8_0:
      return {.bits = 8};
    case DType::q2_k:
      return {
          .bits = 2, .sub_columns = 16, .has_minima = true, .groups_per_super = 8, .group_scale_bytes = 16};
    case DType::q3_k:
      return {.bits = 3, .sub_columns = 16, .offset = 4, .groups_per_super = 8, .group_scale_bytes = 16};
    case DType::q4_k:
      return {.bits = 4, .has_minima = true, .groups_per_super = 8, .group_scale_bytes = 16};
    case DType::q5_k:
      return {.bits = 5, .has_minima = true, .groups_per_super = 8, .group_scale_bytes = 16};
    case DType::q6_k:
      return {.bits = 6, .sub_columns = 16, .offset = 32, .groups_per_super = 8, .group_scale_bytes = 16};
    default:
      return {};
  }
}

struct PackedWeights {
  DType dtype = DType::q8_0;
  int64_t panels = 0;
  size_t panel_bytes = 0;
  LazyMemory memory;

  bool empty() const { return panels == 0; }
  const uint8_t* panel(int64_t index) const {
    return reinterpret_cast<const uint8_t*>(memory.data()) + static_cast<size_t>(index) * panel_bytes;
  }
};

// data: rows of a block type as a GGUF file has them. Errors: out_of_memory.
Expected<PackedWeights> pack_weights(DType dtype, const std::byte* data, int64_t rows, int64_t cols,
                                     ThreadPool& pool);

}  // namespace kv8::ops::cpu
