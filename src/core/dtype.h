// Element types of tensors: plain numbers, and the block types of GGUF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kv8 {

enum class DType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  // GGUF block types: block_elements numbers in block_bytes bytes.
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
};

struct DTypeInfo {
  std::string_view name;  // as messages and `kv8 info` print it
  int block_elements;     // 1 for plain numbers
  int block_bytes;        // bytes of one block
};

const DTypeInfo& dtype_info(DType dtype);

inline std::string_view to_string(DType dtype) {
  return dtype_info(dtype).name;
}
inline bool is_block_type(DType dtype) {
  return dtype_info(dtype).block_elements > 1;
}

}  // namespace kv8
