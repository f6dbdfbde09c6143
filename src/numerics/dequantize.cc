#include "numerics/dequantize.h"

#include <cstring>

#include "core/check.h"
#include "numerics/e4m3.h"
#include "numerics/half.h"

namespace kv8::numerics {

namespace {

template <class T>
T load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

float load_f16(const uint8_t* from) {
  return f16_to_float(load<uint16_t>(from));
}

int low_nibble(uint8_t byte) {
  return byte & 0xF;
}
int high_nibble(uint8_t byte) {
  return byte >> 4;
}

// Blocks of 32: one scale d, in the _1 types a minimum m too. Byte i holds the low bits of elements i and
// i + 16.

void decode_q4_0(const uint8_t* block, float* out) {  // d, 16 bytes of nibbles
  const float d = load_f16(block);
  const uint8_t* nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(nibbles[i]) - 8);
    out[i + 16] = d * static_cast<float>(high_nibble(nibbles[i]) - 8);
  }
}

void decode_q4_1(const uint8_t* block, float* out) {  // d, m, 16 bytes of nibbles
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  const uint8_t* nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(nibbles[i])) + m;
    out[i + 16] = d * static_cast<float>(high_nibble(nibbles[i])) + m;
  }
}

// The fifth bit of element i is bit i of a 32-bit word.
int fifth_bit(uint32_t word, int element) {
  return static_cast<int>((word >> element) & 1u) << 4;
}

void decode_q5_0(const uint8_t* block, float* out) {  // d, fifth bits, 16 bytes of nibbles
  const float d = load_f16(block);
  const auto fifths = load<uint32_t>(block + 2);
  const uint8_t* nibbles = block + 6;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((low_nibble(nibbles[i]) | fifth_bit(fifths, i)) - 16);
    out[i + 16] = d * static_cast<float>((high_nibble(nibbles[i]) | fifth_bit(fifths, i + 16)) - 16);
  }
}

void decode_q5_1(const uint8_t* block, float* out) {  // d, m, fifth bits, 16 bytes of nibbles
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  const auto fifths = load<uint32_t>(block + 4);
  const uint8_t* nibbles = block + 8;
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(nibbles[i]) | fifth_bit(fifths, i)) + m;
    out[i + 16] = d * static_cast<float>(high_nibble(nibbles[i]) | fifth_bit(fifths, i + 16)) + m;
  }
}

void decode_q8_0(const uint8_t* block, float* out) {  // d, 32 signed bytes
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
}

// Blocks of 256. In Q2_K and Q3_K each half of 128 elements shares 32 bytes of 2-bit codes: element 32 * k +
// i of the half lies in bits 2k, 2k + 1 of byte i. Sub-blocks, each with its own scale, are 16 elements.

void decode_q2_k(const uint8_t* block, float* out) {  // 16 (scale, minimum) nibbles, 64 bytes of codes, d, m
  const uint8_t* scales = block;
  const uint8_t* codes = block + 16;
  const float d = load_f16(block + 80);
  const float m = load_f16(block + 82);
  for (int element = 0; element < 256; ++element) {
    const int half = element / 128;
    const int k = element / 32 % 4;
    const int i = element % 32;
    const uint8_t scale = scales[element / 16];
    const int code = (codes[half * 32 + i] >> (2 * k)) & 3;
    out[element] = d * static_cast<float>(low_nibble(scale)) * static_cast<float>(code) -
                   m * static_cast<float>(high_nibble(scale));
  }
}

// Sixteen 6-bit scales in 12 bytes: 16 nibbles (0 to 7 low, 8 to 15 high), then 16 pairs of upper bits.
int q3_k_scale(const uint8_t* packed, int sub_block) {
  const int low = sub_block < 8 ? low_nibble(packed[sub_block]) : high_nibble(packed[sub_block - 8]);
  const int high = (packed[8 + sub_block % 4] >> (2 * (sub_block / 4))) & 3;
  return (low | (high << 4)) - 32;
}

void decode_q3_k(const uint8_t* block, float* out) {  // 32 bytes of third bits, 64 of codes, 12 of scales, d
  const uint8_t* third_bits = block;
  const uint8_t* codes = block + 32;
  const uint8_t* scales = block + 96;
  const float d = load_f16(block + 108);
  for (int element = 0; element < 256; ++element) {
    const int half = element / 128;
    const int k = element / 32 % 4;
    const int i = element % 32;
    const int low = (codes[half * 32 + i] >> (2 * k)) & 3;
    const int third = (third_bits[i] >> (4 * half + k)) & 1;
    const int code = (low | (third << 2)) - 4;
    out[element] = d * static_cast<float>(q3_k_scale(scales, element / 16)) * static_cast<float>(code);
  }
}

// Q4_K and Q5_K: eight sub-blocks of 32, a 6-bit scale and a 6-bit minimum each, in 12 bytes: those of the
// first four in the low 6 bits of bytes 0 to 7, those of the last four as nibbles in bytes 8 to 11, with
// their upper two bits atop bytes 0 to 7.
struct ScaleAndMinimum {
  int scale;
  int minimum;
};

ScaleAndMinimum k_scale_and_minimum(const uint8_t* packed, int sub_block) {
  if (sub_block < 4) return {packed[sub_block] & 63, packed[sub_block + 4] & 63};
  const uint8_t nibbles = packed[sub_block + 4];
  return {low_nibble(nibbles) | ((packed[sub_block - 4] >> 6) << 4),
          high_nibble(nibbles) | ((packed[sub_block] >> 6) << 4)};
}

// Sub-blocks 2p and 2p + 1 share 32 bytes: low nibbles and high nibbles. `fifth_bits` (Q5_K) holds the fifth
// bit of element i of sub-block s in bit s of byte i; nullptr for Q4_K.
void decode_nibbles_k(const uint8_t* block, const uint8_t* fifth_bits, const uint8_t* nibbles, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int sub_block = 0; sub_block < 8; ++sub_block) {
    const auto [scale, minimum] = k_scale_and_minimum(block + 4, sub_block);
    const float sub_d = d * static_cast<float>(scale);
    const float sub_m = m * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = nibbles[sub_block / 2 * 32 + i];
      int code = sub_block % 2 == 0 ? low_nibble(byte) : high_nibble(byte);
      if (fifth_bits != nullptr) code |= ((fifth_bits[i] >> sub_block) & 1) << 4;
      out[sub_block * 32 + i] = sub_d * static_cast<float>(code) - sub_m;
    }
  }
}

void decode_q4_k(const uint8_t* block, float* out) {  // d, m, 12 bytes of scales, 128 of nibbles
  decode_nibbles_k(block, nullptr, block + 16, out);
}

void decode_q5_k(const uint8_t* block,
                 float* out) {  // d, m, 12 bytes of scales, 32 of fifth bits, 128 nibbles
  decode_nibbles_k(block, block + 16, block + 48, out);
}

void decode_q6_k(const uint8_t* block, float* out) {  // 128 bytes of nibbles, 64 of upper pairs, 16 scales, d
  const uint8_t* nibbles = block;
  const uint8_t* pairs = block + 128;
  const uint8_t* scales = block + 192;
  const float d = load_f16(block + 208);
  for (int element = 0; element < 256; ++element) {
    const int half = element / 128;
    const int k = element / 32 % 4;
    const int i = element % 32;
    const uint8_t byte = nibbles[half * 64 + k % 2 * 32 + i];
    const int low = k < 2 ? low_nibble(byte) : high_nibble(byte);
    const int high = (pairs[half * 32 + i] >> (2 * k)) & 3;
    const auto scale = static_cast<int8_t>(scales[element / 16]);
    out[element] = d * static_cast<float>(scale) * static_cast<float>((low | (high << 4)) - 32);
  }
}

template <class Decode>
void decode_blocks(DType dtype, const uint8_t* row, int64_t cols, float* out, Decode decode) {
  const DTypeInfo& info = dtype_info(dtype);
  KV8_CHECK(cols % info.block_elements == 0, "{} columns of {}", cols, info.name);
  for (int64_t start = 0; start < cols; start += info.block_elements, row += info.block_bytes) {
    decode(row, out + start);
  }
}

template <class T, class Widen>
void widen_each(const uint8_t* row, int64_t cols, float* out, Widen widen) {
  for (int64_t i = 0; i < cols; ++i) out[i] = widen(load<T>(row + static_cast<size_t>(i) * sizeof(T)));
}

template <class T>
void convert_each(const uint8_t* row, int64_t cols, float* out) {
  widen_each<T>(row, cols, out, [](T value) { return static_cast<float>(value); });
}

}  // namespace

void dequantize_row(DType dtype, const std::byte* row, int64_t cols, float* out) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (dtype) {
    case DType::f64:
      return convert_each<double>(bytes, cols, out);
    case DType::f32:
      return convert_each<float>(bytes, cols, out);
    case DType::f16:
      return widen_each<uint16_t>(bytes, cols, out, f16_to_float);
    case DType::bf16:
      return widen_each<uint16_t>(bytes, cols, out, bf16_to_float);
    case DType::f8_e4m3:
      return widen_each<uint8_t>(bytes, cols, out, e4m3_to_float);
    case DType::f8_e5m2:
      return widen_each<uint8_t>(bytes, cols, out, e5m2_to_float);
    case DType::i64:
      return convert_each<int64_t>(bytes, cols, out);
    case DType::i32:
      return convert_each<int32_t>(bytes, cols, out);
    case DType::i16:
      return convert_each<int16_t>(bytes, cols, out);
    case DType::i8:
      return convert_each<int8_t>(bytes, cols, out);
    case DType::u64:
      return convert_each<uint64_t>(bytes, cols, out);
    case DType::u32:
      return convert_each<uint32_t>(bytes, cols, out);
    case DType::u16:
      return convert_each<uint16_t>(bytes, cols, out);
    case DType::u8:
      return convert_each<uint8_t>(bytes, cols, out);
    case DType::boolean:
      return widen_each<uint8_t>(bytes, cols, out, [](uint8_t value) { return value != 0 ? 1.0f : 0.0f; });
    case DType::q4_0:
      return decode_blocks(dtype, bytes, cols, out, decode_q4_0);
    case DType::q4_1:
      return decode_blocks(dtype, bytes, cols, out, decode_q4_1);
    case DType::q5_0:
      return decode_blocks(dtype, bytes, cols, out, decode_q5_0);
    case DType::q5_1:
      return decode_blocks(dtype, bytes, cols, out, decode_q5_1);
    case DType::q8_0:
      return decode_blocks(dtype, bytes, cols, out, decode_q8_0);
    case DType::q2_k:
      return decode_blocks(dtype, bytes, cols, out, decode_q2_k);
    case DType::q3_k:
      return decode_blocks(dtype, bytes, cols, out, decode_q3_k);
    case DType::q4_k:
      return decode_blocks(dtype, bytes, cols, out, decode_q4_k);
    case DType::q5_k:
      return decode_blocks(dtype, bytes, cols, out, decode_q5_k);
    case DType::q6_k:
      return decode_blocks(dtype, bytes, cols, out, decode_q6_k);
  }
  KV8_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

}  // namespace kv8::numerics
