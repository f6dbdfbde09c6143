#include "numerics/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace kv8::numerics {
namespace {

// What a code of a small IEEE format means, by its definition: infinities are NaN's neighbours and come out
// as infinity.
double value_of(uint32_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1);
  const double sign = (code >> (exponent_bits + mantissa_bits)) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

void expect_same(double actual, double expected, uint32_t code) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << "code " << code;
    return;
  }
  EXPECT_EQ(actual, expected) << "code " << code;
  EXPECT_EQ(std::signbit(actual), std::signbit(expected)) << "code " << code;
}

TEST(Half, EveryCodeWidensToItsDefinition) {
  for (uint32_t code = 0; code < 65536; ++code) {
    expect_same(f16_to_float(static_cast<uint16_t>(code)), value_of(code, 5, 10), code);
    expect_same(bf16_to_float(static_cast<uint16_t>(code)), value_of(code, 8, 7), code);
  }
  for (uint32_t code = 0; code < 256; ++code) {
    expect_same(e5m2_to_float(static_cast<uint8_t>(code)), value_of(code, 5, 2), code);
  }
}

// Between every pair of neighbours: the midpoint goes to the even code, one float away from it to the nearer.
template <class Narrow, class Widen>
void check_rounding(Narrow narrow, Widen widen, uint16_t infinity, int exponent_bits, int mantissa_bits) {
  for (uint16_t code = 0; code < infinity; ++code) {
    const auto next = static_cast<uint16_t>(code + 1);
    ASSERT_EQ(narrow(widen(code)), code);
    ASSERT_EQ(narrow(-widen(code)), code | 0x8000u);
    // Infinity stands for the value that would follow the largest one.
    const double below = value_of(code, exponent_bits, mantissa_bits);
    const double above = next == infinity ? 2 * below - value_of(code - 1, exponent_bits, mantissa_bits)
                                          : value_of(next, exponent_bits, mantissa_bits);
    const auto middle = static_cast<float>((below + above) / 2);
    if (static_cast<double>(middle) != (below + above) / 2) continue;  // finer than float: bf16 at 2^-133
    const uint16_t even = (code & 1) == 0 ? code : next;
    ASSERT_EQ(narrow(middle), even) << "code " << code;
    ASSERT_EQ(narrow(-middle), even | 0x8000u) << "code " << code;
    ASSERT_EQ(narrow(std::nextafter(middle, 0.0f)), code) << "code " << code;
    ASSERT_EQ(narrow(std::nextafter(middle, std::numeric_limits<float>::infinity())), next)
        << "code " << code;
  }
}

TEST(Half, NarrowingRoundsToNearestEvenEverywhere) {
  check_rounding(float_to_f16, f16_to_float, 0x7C00, 5, 10);
  check_rounding(float_to_bf16, bf16_to_float, 0x7F80, 8, 7);
}

TEST(Half, NarrowingKeepsInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_f16(infinity), 0x7C00);
  EXPECT_EQ(float_to_f16(-infinity), 0xFC00);
  EXPECT_EQ(float_to_f16(1e30f), 0x7C00);
  EXPECT_EQ(float_to_bf16(infinity), 0x7F80);
  EXPECT_EQ(float_to_bf16(-infinity), 0xFF80);
  for (const uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF80FFFFu}) {
    const auto nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(nan)))) << bits;
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(nan)))) << bits;
  }
  EXPECT_EQ(float_to_f16(1e-30f), 0);
  EXPECT_EQ(float_to_f16(-1e-30f), 0x8000);
}

}  // namespace
}  // namespace kv8::numerics
