#include "numerics/e4m3.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace kv8::numerics {
namespace {

// The values of codes 0x00 to 0x7E from the definition of the format, not from its bits in a float.
std::array<double, 127> magnitudes() {
  std::array<double, 127> values{};
  for (int code = 0; code < 127; ++code) {
    const int exponent = code >> 3;
    const int mantissa = code & 7;
    values[code] = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 7 - 3);
  }
  return values;
}
const std::array<double, 127> kMagnitudes = magnitudes();

// Nearest value; between two equally near ones, the even code.
uint8_t nearest(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7F;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= kMagnitudes.back()) return sign | 0x7E;
  const auto above = std::upper_bound(kMagnitudes.begin(), kMagnitudes.end(), magnitude);
  const int high = static_cast<int>(above - kMagnitudes.begin());
  const int low = high - 1;
  const double to_low = magnitude - kMagnitudes[low];
  const double to_high = kMagnitudes[high] - magnitude;
  const bool take_low = to_low < to_high || (to_low == to_high && low % 2 == 0);
  return sign | static_cast<uint8_t>(take_low ? low : high);
}

// Every rounding boundary with the floats beside it, the ends of the range, and a dense sweep of all floats.
std::vector<float> sweep() {
  std::vector<float> values;
  const float infinity = std::numeric_limits<float>::infinity();
  const auto add_neighbourhood = [&](double centre) {
    for (const double signed_centre : {centre, -centre}) {
      const auto middle = static_cast<float>(signed_centre);
      values.insert(values.end(),
                    {std::nextafter(middle, -infinity), middle, std::nextafter(middle, infinity)});
    }
  };
  for (size_t code = 0; code < kMagnitudes.size(); ++code) {
    add_neighbourhood(kMagnitudes[code]);
    if (code > 0) add_neighbourhood((kMagnitudes[code - 1] + kMagnitudes[code]) / 2);
  }
  add_neighbourhood(464);
  add_neighbourhood(480);
  values.insert(values.end(),
                {infinity, -infinity, std::nanf(""), -std::nanf(""), 0.0F, -0.0F, 3e38F, 1e-45F});
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 2039)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return values;
}

class E4m3Span : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST(E4m3, WidensEveryCode) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, kMagnitudes[code & 0x7F] * (code < 128 ? 1 : -1)) << code;
    }
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
}

TEST(E4m3, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code < 256; ++code)
    EXPECT_EQ(float_to_e4m3(e4m3_to_float(static_cast<uint8_t>(code))), code);
}

TEST(E4m3, NarrowsToTheNearestEven) {
  for (const float value : sweep()) ASSERT_EQ(float_to_e4m3(value), nearest(value)) << std::hexfloat << value;
}

TEST(E4m3, IsUsableAtCompileTime) {
  static_assert(float_to_e4m3(1.0F) == 0x38);
  static_assert(e4m3_to_float(0x7E) == kE4m3Max);
}

TEST_P(E4m3Span, QuantizesAsTheScalarDoes) {
  const std::vector<float> values = sweep();
  for (const float inverse_scale : {1.0F, 0.37F, 5.3F}) {
    std::vector<uint8_t> codes(values.size());
    const int64_t saturated = quantize_e4m3(values.data(), values.size(), inverse_scale, codes.data());
    int64_t expected = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float scaled = values[i] * inverse_scale;
      ASSERT_EQ(codes[i], float_to_e4m3(scaled)) << std::hexfloat << values[i] << " * " << inverse_scale;
      expected += std::fabs(scaled) > kE4m3Max ? 1 : 0;
    }
    EXPECT_EQ(saturated, expected);
  }
}

TEST_P(E4m3Span, DequantizesAsTheScalarDoes) {
  std::vector<uint8_t> codes(256);
  for (int code = 0; code < 256; ++code) codes[code] = static_cast<uint8_t>(code);
  for (const float scale : {1.0F, 0.0123F, 700.0F}) {
    std::vector<float> values(codes.size());
    dequantize_e4m3(codes.data(), codes.size(), scale, values.data());
    for (int code = 0; code < 256; ++code) {
      const float expected = e4m3_to_float(static_cast<uint8_t>(code)) * scale;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(values[code])) << code;
      } else {
        EXPECT_EQ(values[code], expected) << code;
      }
    }
  }
}

TEST_P(E4m3Span, EveryLengthStaysInsideItsBuffer) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0F, 100.0F);
  for (size_t count = 0; count <= 70; ++count) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    std::vector<uint8_t> codes(count + 1, 0xAB);
    quantize_e4m3(values.data(), count, 1.0F, codes.data());
    EXPECT_EQ(codes[count], 0xAB);
    std::vector<float> back(count + 1, -1.25F);
    dequantize_e4m3(codes.data(), count, 1.0F, back.data());
    EXPECT_EQ(back[count], -1.25F);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(back[i], e4m3_to_float(nearest(values[i])));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, E4m3Span, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace kv8::numerics
