#include "ops/cuda/kernels/rms_norm.h"

#include <cmath>

#include <gtest/gtest.h>

#include "ops/cuda/device.h"

namespace kv8::ops::cuda::test {
namespace {

constexpr float kEpsilon = 1e-5F;

std::vector<double> reference_norm(const double* row, const std::vector<float>& weight) {
  double sum = 0;
  for (size_t i = 0; i < weight.size(); ++i) sum += row[i] * row[i];
  const double factor = 1.0 / std::sqrt(sum / static_cast<double>(weight.size()) + kEpsilon);
  std::vector<double> out;
  for (size_t i = 0; i < weight.size(); ++i) out.push_back(row[i] * factor * weight[i]);
  return out;
}

void expect_bf16_near(const std::vector<float>& result, const std::vector<double>& expected) {
  ASSERT_EQ(result.size(), expected.size());
  for (size_t i = 0; i < result.size(); ++i) {
    ASSERT_NEAR(result[i], expected[i], std::abs(expected[i]) * 0x1.01p-8 + 1e-7)
        << i;  // half a step of bf16
  }
}

class RmsNorm : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Widths, RmsNorm, testing::Values(8, 64, 576, 2880, 4096, 5120, 8192, 12000, 16384));

TEST_P(RmsNorm, MatchesFloat64) {
  const auto cols = static_cast<size_t>(GetParam());
  constexpr size_t kRows = 7;
  const std::vector<uint16_t> bits = random_bf16(kRows * cols, 17, 3.0F);
  const std::vector<float> x = from_bf16(bits);
  const std::vector<float> weight = random_normal(cols, 19);
  const Buffer<float> device_weight(weight);
  std::vector<double> expected;
  for (size_t r = 0; r < kRows; ++r) {
    const std::vector<double> row(x.begin() + static_cast<int64_t>(r * cols),
                                  x.begin() + static_cast<int64_t>((r + 1) * cols));
    for (double value : reference_norm(row.data(), weight)) expected.push_back(value);
  }
  const Buffer<uint16_t> device_bits(bits);
  const Buffer<float> device_x(x);
  for (DType type : {DType::bf16, DType::f32}) {
    const Buffer<uint16_t> out(kRows * cols);
    run([&](cudaStream_t stream) {
      return rms_norm(stream,
                      type == DType::bf16 ? static_cast<const void*>(device_bits.get()) : device_x.get(),
                      type, device_weight.get(), kEpsilon, kRows, GetParam(), out.get());
    });
    expect_bf16_near(from_bf16(out.download()), expected);
  }
}

TEST_P(RmsNorm, AddsFirstWithAndWithoutPostNorm) {
  const auto cols = static_cast<size_t>(GetParam());
  constexpr size_t kRows = 5;
  const std::vector<uint16_t> bits = random_bf16(kRows * cols, 23, 0.5F);
  const std::vector<float> x = from_bf16(bits);
  const std::vector<float> residual = random_normal(kRows * cols, 29, 20.0F);
  const std::vector<float> weight = random_normal(cols, 31);
  const std::vector<float> post_weight = random_normal(cols, 37);
  const Buffer<float> device_weight(weight);
  const Buffer<float> device_post(post_weight);
  const Buffer<uint16_t> device_bits(bits);
  const Buffer<float> device_x(x);
  for (bool post : {false, true}) {
    for (DType type : {DType::bf16, DType::f32}) {
      std::vector<double> sums;
      std::vector<double> expected;
      for (size_t r = 0; r < kRows; ++r) {
        std::vector<double> row(x.begin() + static_cast<int64_t>(r * cols),
                                x.begin() + static_cast<int64_t>((r + 1) * cols));
        if (post) row = reference_norm(row.data(), post_weight);
        for (size_t i = 0; i < cols; ++i) row[i] += residual[r * cols + i];
        sums.insert(sums.end(), row.begin(), row.end());
        for (double value : reference_norm(row.data(), weight)) expected.push_back(value);
      }
      const Buffer<float> device_residual(residual);
      const Buffer<uint16_t> out(kRows * cols);
      run([&](cudaStream_t stream) {
        return add_rms_norm(
            stream, device_residual.get(),
            type == DType::bf16 ? static_cast<const void*>(device_bits.get()) : device_x.get(), type,
            post ? device_post.get() : nullptr, device_weight.get(), kEpsilon, kRows, GetParam(), out.get());
      });
      EXPECT_LT(relative_error(device_residual.download(), sums), 1e-7);
      expect_bf16_near(from_bf16(out.download()), expected);
    }
  }
}

TEST(RmsNormRows, AreEqualBitForBitInAnyCompany) {
  constexpr size_t kCols = 4096;
  const std::vector<float> x = random_normal(300 * kCols, 41);
  const std::vector<float> weight = random_normal(kCols, 43);
  const Buffer<float> device_x(x);
  const Buffer<float> device_weight(weight);
  const Buffer<uint16_t> many(300 * kCols);
  const Buffer<uint16_t> one(kCols);
  run([&](cudaStream_t stream) {
    return rms_norm(stream, device_x.get(), DType::f32, device_weight.get(), kEpsilon, 300, kCols,
                    many.get());
  });
  run([&](cudaStream_t stream) {
    return rms_norm(stream, device_x.get() + 200 * kCols, DType::f32, device_weight.get(), kEpsilon, 1, kCols,
                    one.get());
  });
  const std::vector<uint16_t> all = many.download();
  EXPECT_EQ(one.download(), std::vector<uint16_t>(all.begin() + 200 * kCols, all.begin() + 201 * kCols));
}

TEST(RmsNormRefuses, WidthsAndTypes) {
  const Buffer<float> memory(64);
  EXPECT_FALSE(rms_norm(nullptr, memory.get(), DType::f32, memory.get(), kEpsilon, 1, 12, memory.get()));
  EXPECT_FALSE(rms_norm(nullptr, memory.get(), DType::f32, memory.get(), kEpsilon, 1, 2 * kLargestNormedRow,
                        memory.get()));
  EXPECT_FALSE(rms_norm(nullptr, memory.get(), DType::f16, memory.get(), kEpsilon, 1, 8, memory.get()));
  EXPECT_FALSE(rms_norm(nullptr, nullptr, DType::f32, memory.get(), kEpsilon, 1, 8, memory.get()));
}

}  // namespace
}  // namespace kv8::ops::cuda::test
