// OCP e4m3 (e4m3fn): 1 sign, 4 exponent (bias 7), 3 mantissa bits. Largest 448, smallest normal 2^-6,
// smallest subnormal 2^-9, no infinity, NaN is 0x7F or 0xFF. Narrowing rounds to nearest even and saturates
// to +-448 (infinity too); NaN stays NaN. Codes are raw bits.
//
// The spans run on the widest SIMD unit the machine has and equal the scalar functions bit for bit.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kv8::numerics {

constexpr float kE4m3Max = 448.0F;
constexpr uint8_t kE4m3NanMagnitude = 0x7F;  // the code of NaN, sign aside

constexpr float e4m3_to_float(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80U) << 24;
  const uint32_t magnitude = code & 0x7FU;
  if (magnitude == kE4m3NanMagnitude) return std::bit_cast<float>(sign | 0x7FC00000U);
  // At their place in a float the code's bits stand for value * 2^-120, subnormals included.
  return std::bit_cast<float>(sign | (magnitude << 20)) * 0x1p120F;
}

constexpr uint8_t float_to_e4m3(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint8_t>((bits >> 24) & 0x80U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | kE4m3NanMagnitude;
  if (magnitude >= 0x43E00000U) return sign | 0x7EU;  // 448 and above
  if (magnitude < 0x3C800000U) {
    // Below 2^-6 the step is 2^-9, which is the last place of 2^14: the addition rounds to nearest even.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14F;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) - 0x46800000U);
  }
  // Half of the last kept place, less one where that place is even: ties then go to even.
  const uint32_t rounding = 0x7FFFFU + ((magnitude >> 20) & 1U);
  return sign | static_cast<uint8_t>((magnitude - (120U << 23) + rounding) >> 20);
}

// out[i] = float_to_e4m3(x[i] * inverse_scale). Returns how many of the products were beyond +-448 and so
// were saturated (infinities count, NaN doesn't).
int64_t quantize_e4m3(const float* x, size_t count, float inverse_scale, uint8_t* out);

// out[i] = e4m3_to_float(codes[i]) * scale.
void dequantize_e4m3(const uint8_t* codes, size_t count, float scale, float* out);

}  // namespace kv8::numerics
