#include "numerics/hopper_accumulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "core/mapped_file.h"
#include "fixtures.h"
#include "numerics/e4m3.h"

namespace kv8::numerics {
namespace {

// One H200 instruction per block: D[m][n] = sum over k of A[m][k] * B[n][k], plus C[m][n].
struct Wgmma {
  static constexpr int kBlocks = 64;
  static constexpr int kM = 64;
  static constexpr int kN = 8;
  std::vector<uint8_t> a = std::vector<uint8_t>(kBlocks * kM * kHopperStep);
  std::vector<uint8_t> b = std::vector<uint8_t>(kBlocks * kN * kHopperStep);
  std::vector<float> c = std::vector<float>(kBlocks * kM * kN);
  std::vector<float> d = std::vector<float>(kBlocks * kM * kN);
};

Wgmma load_fixture() {
  Wgmma fixture;
  const auto file = MappedFile::open(test::fixtures() / "wgmma/m64n8k32_e4m3.bin");
  EXPECT_TRUE(file) << file.error().message;
  const auto bytes = file->bytes();
  EXPECT_EQ(bytes.size(), fixture.a.size() + fixture.b.size() + 8 * fixture.c.size());
  const std::byte* at = bytes.data();
  const auto take = [&at](auto& array) {
    std::memcpy(array.data(), at, array.size() * sizeof(array[0]));
    at += array.size() * sizeof(array[0]);
  };
  take(fixture.a);
  take(fixture.b);
  take(fixture.c);
  take(fixture.d);
  return fixture;
}

// Codes whose magnitudes spread over `spread` binades, with zeros and subnormals among them.
std::vector<uint8_t> random_codes(std::mt19937& random, size_t count, float spread) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> exponent(-spread, 0.0F);
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) {
    code = float_to_e4m3(normal(random) * 64.0F * std::exp2(exponent(random)));
    if (random() % 16 == 0) code = 0x80 * (random() % 2);
  }
  return codes;
}

TEST(HopperStep, EqualsTheH200OnEveryVector) {
  const Wgmma w = load_fixture();
  for (size_t element = 0; element < w.d.size(); ++element) {
    const size_t row = element / Wgmma::kN;  // of all blocks' rows
    const size_t column = row / Wgmma::kM * Wgmma::kN + element % Wgmma::kN;
    const float d = hopper_step(&w.a[row * kHopperStep], &w.b[column * kHopperStep], w.c[element]);
    ASSERT_EQ(std::bit_cast<uint32_t>(d), std::bit_cast<uint32_t>(w.d[element])) << element;
  }
}

TEST(HopperStep, KeepsThirteenBitsTowardZero) {
  std::vector<uint8_t> a(kHopperStep, 0);
  std::vector<uint8_t> b(kHopperStep, 0);
  a[5] = b[5] = float_to_e4m3(1.0F);
  EXPECT_EQ(hopper_step(a.data(), b.data(), 0.0F), 1.0F);
  EXPECT_EQ(hopper_step(a.data(), b.data(), 8192.0F), 8193.0F);
  EXPECT_EQ(hopper_step(a.data(), b.data(), 16384.0F), 16384.0F);  // half a tick is lost
  a[5] = float_to_e4m3(3.0F);
  EXPECT_EQ(hopper_step(a.data(), b.data(), -16384.0F), -16382.0F);  // 3 counts as one tick of 2
}

TEST(HopperStep, NanIsContagious) {
  std::vector<uint8_t> a(kHopperStep, 0);
  std::vector<uint8_t> b(kHopperStep, 0x38);
  b[31] = 0xFF;
  EXPECT_TRUE(std::isnan(hopper_step(a.data(), b.data(), 1.0F)));
}

class HopperMatrixOnTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(HopperMatrixOnTarget, EqualsTheH200OnEveryVector) {
  const Wgmma w = load_fixture();
  HopperRow row;
  HopperMatrix matrix;
  for (int block = 0; block < Wgmma::kBlocks; ++block) {
    matrix.assign_transposed(&w.b[block * Wgmma::kN * kHopperStep], kHopperStep, Wgmma::kN, kHopperStep);
    for (int m = block * Wgmma::kM; m < (block + 1) * Wgmma::kM; ++m) {
      row.assign(&w.a[m * kHopperStep], kHopperStep);
      std::vector<float> c(matrix.padded_columns(), 0.0F);
      std::copy_n(&w.c[m * Wgmma::kN], Wgmma::kN, c.data());
      matrix.step(row, 0, c.data());
      for (int n = 0; n < Wgmma::kN; ++n)
        ASSERT_EQ(std::bit_cast<uint32_t>(c[n]), std::bit_cast<uint32_t>(w.d[m * Wgmma::kN + n]));
    }
  }
}

TEST_P(HopperMatrixOnTarget, ChainsEqualTheDefinition) {
  std::mt19937 random(5);
  constexpr int kK = 256;
  for (const int columns : {1, 64, 80, 130, 256}) {
    for (const float spread : {1.0F, 8.0F, 16.0F}) {
      const auto a = random_codes(random, kK, spread);
      const auto b = random_codes(random, static_cast<size_t>(kK) * columns, spread);
      std::vector<uint8_t> b_transposed(b.size());
      for (int k = 0; k < kK; ++k) {
        for (int j = 0; j < columns; ++j) b_transposed[j * kK + k] = b[k * columns + j];
      }
      HopperRow row;
      row.assign(a.data(), kK);
      HopperMatrix matrix;
      matrix.assign(b.data(), kK, columns, columns);
      HopperMatrix same;
      same.assign_transposed(b_transposed.data(), kK, columns, kK);
      std::vector<float> c(matrix.padded_columns(), 0.0F);
      std::vector<float> c_same = c;
      std::vector<float> expected(columns, 0.0F);
      for (int k = 0; k < kK; k += kHopperStep) {
        matrix.step(row, k, c.data());
        same.step(row, k, c_same.data());
        for (int j = 0; j < columns; ++j) {
          expected[j] = hopper_step(&a[k], &b_transposed[j * kK + k], expected[j]);
          ASSERT_EQ(c[j], expected[j]) << k << " " << j;
        }
        ASSERT_EQ(c, c_same);
      }
    }
  }
}

TEST_P(HopperMatrixOnTarget, ExtremeAddendsEqualTheDefinition) {
  std::mt19937 random(6);
  const auto a = random_codes(random, kHopperStep, 12.0F);
  const auto b = random_codes(random, kHopperStep, 12.0F);
  const std::vector<uint8_t> zeros(kHopperStep, 0);
  HopperMatrix matrix;
  matrix.assign(b.data(), kHopperStep, 1, 1);
  for (const auto* operand : {&a, &zeros}) {
    HopperRow row;
    row.assign(operand->data(), kHopperStep);
    for (int exponent = -60; exponent <= 60; ++exponent) {
      std::vector<float> c(matrix.padded_columns(), 0.0F);
      c[0] = std::ldexp(-1.2345678F, exponent);
      const float expected = hopper_step(operand->data(), b.data(), c[0]);
      matrix.step(row, 0, c.data());
      EXPECT_EQ(c[0], expected) << exponent;
    }
  }
}

TEST_P(HopperMatrixOnTarget, NanReachesItsColumnOnly) {
  std::mt19937 random(7);
  auto a = random_codes(random, 2 * kHopperStep, 4.0F);
  auto b = random_codes(random, 2 * kHopperStep * 3, 4.0F);
  b[4 * 3 + 1] = 0xFF;
  HopperMatrix matrix;
  matrix.assign(b.data(), 2 * kHopperStep, 3, 3);
  for (const bool zero_row : {false, true}) {
    if (zero_row) a.assign(a.size(), 0);
    HopperRow row;
    row.assign(a.data(), 2 * kHopperStep);
    std::vector<float> c(matrix.padded_columns(), 0.0F);
    matrix.step(row, 0, c.data());
    matrix.step(row, kHopperStep, c.data());
    EXPECT_FALSE(std::isnan(c[0]));
    EXPECT_TRUE(std::isnan(c[1])) << zero_row;
    EXPECT_FALSE(std::isnan(c[2]));
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, HopperMatrixOnTarget,
                         testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace kv8::numerics
