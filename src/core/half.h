// The 16-bit floats and e5m2, bit by bit, for code that converts a number here and there. Widening is exact;
// narrowing rounds to nearest even, overflows to infinity and keeps NaN a (quiet) NaN. Codes are raw bits.
#pragma once

#include <bit>
#include <cstdint>

namespace kv8 {

// bfloat16 is the upper half of a float.
constexpr float bf16_to_float(uint16_t code) {
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 16);
}

constexpr uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
  // Half of the last kept place, less one where that place is even: ties then go to even. A carry out of the
  // mantissa steps the exponent, up to infinity, as it should.
  const uint32_t rounding = 0x7FFFu + ((bits >> 16) & 1u);
  return static_cast<uint16_t>((bits + rounding) >> 16);
}

// float16: 1 sign, 5 exponent (bias 15), 10 mantissa bits.
constexpr float f16_to_float(uint16_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x8000u) << 16;
  const uint32_t exponent = (code >> 10) & 0x1Fu;
  const uint32_t mantissa = code & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {  // zero and the subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

constexpr uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | ((bits >> 13) & 0x3FFu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 2^16 and above
  if (magnitude < 0x38800000u) {
    // Below 2^-14, where the step is 2^-24: adding 0.5 leaves a float whose last place is that very step, so
    // the addition itself rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounding = 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + rounding) >> 13));
}

// e5m2 is the upper half of a float16.
constexpr float e5m2_to_float(uint8_t code) {
  return f16_to_float(static_cast<uint16_t>(code << 8));
}

}  // namespace kv8
