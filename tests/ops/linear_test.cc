// Products with weights of every type against float64.
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "ops/cpu/cpu_ops.h"
#include "ops/random_weights.h"

namespace kv8::ops {
namespace {

using test::random_floats;
using test::random_matrix;
using test::RandomMatrix;
using test::ScaleKind;

constexpr DType kBlockTypes[] = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                                 DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k};
constexpr DType kFloatTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2};

std::vector<float> run_linear(Ops& ops, const std::vector<const RandomMatrix*>& parts,
                              const std::vector<float>& x, int64_t tokens) {
  std::vector<MatrixPart> matrix_parts;
  for (const RandomMatrix* part : parts) matrix_parts.push_back(part->part());
  auto matrix = ops.load_matrix(matrix_parts);
  EXPECT_TRUE(matrix.has_value()) << matrix.error().message;
  const int64_t rows = (*matrix)->rows();
  std::vector<float> input = x;
  std::vector<float> out(static_cast<size_t>(tokens * rows), NAN);
  ops.linear(**matrix, cpu::host_activations(input.data(), tokens, (*matrix)->cols()),
             cpu::host_activations(out.data(), tokens, rows));
  EXPECT_EQ(input, x);
  return out;
}

// The largest error relative to sum |w x| + |bias|, which rounding errors are proportional to.
double worst_error(const std::vector<const RandomMatrix*>& parts, const std::vector<float>& x, int64_t tokens,
                   const std::vector<float>& out) {
  double worst = 0.0;
  int64_t stride = 0;
  for (const RandomMatrix* part : parts) stride += part->shape[0];
  int64_t column = 0;
  for (const RandomMatrix* part : parts) {
    const int64_t cols = part->shape[1];
    for (int64_t r = 0; r < part->shape[0]; ++r, ++column) {
      const std::vector<double> weights = part->row(r);
      for (int64_t t = 0; t < tokens; ++t) {
        double sum = part->bias.empty() ? 0.0 : part->bias[static_cast<size_t>(r)];
        double magnitude = std::abs(sum);
        for (int64_t c = 0; c < cols; ++c) {
          const double product = weights[static_cast<size_t>(c)] * x[static_cast<size_t>(t * cols + c)];
          sum += product;
          magnitude += std::abs(product);
        }
        const double error =
            std::abs(out[static_cast<size_t>(t * stride + column)] - sum) / std::max(magnitude, 1e-30);
        if (!(error <= worst)) worst = error;  // NaN too
      }
    }
  }
  return worst;
}

TEST(Linear, FloatWeightsMatchFloat64) {
  std::mt19937 random(1);
  for (const int threads : {1, 3}) {
    const auto ops = cpu::make_cpu_ops({.threads = threads});
    for (const DType dtype : kFloatTypes) {
      for (const auto& [rows, cols] : {std::pair{1, 1}, {7, 13}, {33, 64}, {130, 257}}) {
        for (const int64_t tokens : {1, 2, 3, 4, 17}) {
          const RandomMatrix w = random_matrix(dtype, rows, cols, random);
          const std::vector<float> x = random_floats(static_cast<size_t>(tokens * cols), random);
          EXPECT_LT(worst_error({&w}, x, tokens, run_linear(*ops, {&w}, x, tokens)), 1e-6)
              << to_string(dtype) << " " << rows << "x" << cols << ", " << tokens << " tokens";
        }
      }
    }
  }
}

TEST(Linear, Fp8ScalesOfEveryKind) {
  std::mt19937 random(2);
  const auto ops = cpu::make_cpu_ops({.threads = 2});
  for (const DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    for (const ScaleKind kind : {ScaleKind::tensor, ScaleKind::row, ScaleKind::block}) {
      for (const auto& [rows, cols] : {std::pair{5, 100}, {130, 300}, {256, 128}}) {
        for (const int64_t tokens : {1, 5}) {
          const RandomMatrix w = random_matrix(dtype, rows, cols, random, kind);
          const std::vector<float> x = random_floats(static_cast<size_t>(tokens * cols), random);
          EXPECT_LT(worst_error({&w}, x, tokens, run_linear(*ops, {&w}, x, tokens)), 1e-6)
              << to_string(dtype) << " " << rows << "x" << cols << " scale " << static_cast<int>(kind);
        }
      }
    }
  }
}

TEST(Linear, ExactActivationsOfBlockTypes) {
  std::mt19937 random(3);
  const auto ops = cpu::make_cpu_ops({.threads = 2, .exact_activations = true});
  for (const DType dtype : kBlockTypes) {
    for (const int64_t tokens : {1, 2, 9}) {
      const RandomMatrix w = random_matrix(dtype, 37, 512, random);
      const std::vector<float> x = random_floats(static_cast<size_t>(tokens * 512), random);
      EXPECT_LT(worst_error({&w}, x, tokens, run_linear(*ops, {&w}, x, tokens)), 1e-6) << to_string(dtype);
    }
  }
}

// x as the 8-bit path rounds it.
std::vector<float> rounded(const std::vector<float>& x) {
  std::vector<float> result(x.size());
  for (size_t block = 0; block < x.size(); block += 32) {
    float largest = 0.0F;
    for (size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::abs(x[i]));
    for (size_t i = block; i < block + 32 && largest > 0.0F; ++i) {
      result[i] = std::nearbyint(x[i] * (127.0F / largest)) * (largest / 127.0F);
    }
  }
  return result;
}

// Against the same rounding of x in float64: only float32 sums part them.
TEST(Linear, BlockTypesMatchFloat64OfRoundedActivations) {
  std::mt19937 random(5);
  for (const int threads : {1, 3}) {
    const auto ops = cpu::make_cpu_ops({.threads = threads});
    for (const DType dtype : kBlockTypes) {
      const int block = dtype_info(dtype).block_elements;
      for (const auto& [rows, blocks] : {std::pair{1, 1}, {8, 2}, {21, 3}, {37, 9}, {83, 5}}) {
        for (const int64_t tokens : {1, 2, 3, 5, 17}) {
          const RandomMatrix w =
              random_matrix(dtype, rows, blocks * block, random, ScaleKind::none, rows % 2 == 1);
          const std::vector<float> x = random_floats(static_cast<size_t>(tokens * blocks * block), random);
          EXPECT_LT(worst_error({&w}, rounded(x), tokens, run_linear(*ops, {&w}, x, tokens)), 2e-6)
              << to_string(dtype) << " " << rows << "x" << blocks * block << ", " << tokens << " tokens";
        }
      }
    }
  }
}

// The largest codes of each type and activations of one sign: the integer sums are at their limits.
TEST(Linear, IntegerSumsDoNotOverflow) {
  std::mt19937 random(6);
  const auto ops = cpu::make_cpu_ops({.threads = 1});
  for (const DType dtype : kBlockTypes) {
    for (const int byte : {0xFF, 0x00, 0x80, 0x7F}) {
      RandomMatrix w = random_matrix(dtype, 16, 512, random);
      const RandomMatrix other = w;
      std::fill(w.bytes.begin(), w.bytes.end(), std::byte(byte));
      test::restore_scales(dtype, other, w);
      for (const int64_t tokens : {1, 4}) {
        for (const float value : {1.0F, -1.0F}) {
          const std::vector<float> x(static_cast<size_t>(tokens * 512), value);
          EXPECT_LT(worst_error({&w}, x, tokens, run_linear(*ops, {&w}, x, tokens)), 2e-6)
              << to_string(dtype) << " all bytes " << byte;
        }
      }
    }
  }
}

// A row's result is the same bits in any batch, on any number of threads.
TEST(Linear, RowsDoNotDependOnTheirBatch) {
  std::mt19937 random(7);
  constexpr int64_t kTokens = 300;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3, DType::q4_1, DType::q8_0,
                            DType::q6_k, DType::q4_k}) {
    const RandomMatrix w = random_matrix(dtype, 45, 1280, random);
    const std::vector<float> x = random_floats(static_cast<size_t>(kTokens * 1280), random);
    const std::vector<float> all = run_linear(*cpu::make_cpu_ops({.threads = 3}), {&w}, x, kTokens);
    const auto single = cpu::make_cpu_ops({.threads = 1});
    for (const int64_t token : {int64_t{0}, int64_t{1}, int64_t{191}, kTokens - 1}) {
      const auto at = x.begin() + token * 1280;
      const std::vector<float> alone = run_linear(*single, {&w}, std::vector<float>(at, at + 1280), 1);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + token * 45)) << to_string(dtype);
    }
  }
}

TEST(Linear, NotANumberShows) {
  std::mt19937 random(8);
  const auto ops = cpu::make_cpu_ops({.threads = 1});
  for (const DType dtype : {DType::q4_1, DType::q8_0, DType::bf16}) {
    const RandomMatrix w = random_matrix(dtype, 8, 64, random);
    std::vector<float> x = random_floats(64, random);
    x[40] = NAN;
    std::vector<MatrixPart> parts = {w.part()};
    auto matrix = ops->load_matrix(parts);
    std::vector<float> out(8);
    ops->linear(**matrix, cpu::host_activations(x.data(), 1, 64), cpu::host_activations(out.data(), 1, 8));
    for (const float value : out) EXPECT_TRUE(std::isnan(value)) << to_string(dtype);
  }
}

// Infinities, NaNs and scales beyond what widening in registers knows, in one row of many.
TEST(Linear, SpecialWeightsStayInTheirRow) {
  std::mt19937 random(9);
  const auto ops = cpu::make_cpu_ops({.threads = 2});
  constexpr int64_t kRows = 70;
  constexpr int64_t kCols = 300;
  struct Special {
    DType dtype;
    uint16_t code;
  };
  for (const Special special :
       {Special{DType::f8_e4m3, 0x7F}, Special{DType::f8_e4m3, 0xFF}, Special{DType::f16, 0x7E00},
        Special{DType::f16, 0xFC00}, Special{DType::bf16, 0x7FC0}, Special{DType::bf16, 0xFF80}}) {
    for (const int64_t column : {0, 130, 299}) {
      for (const int64_t tokens : {1, 7}) {
        RandomMatrix w = random_matrix(special.dtype, kRows, kCols, random);
        const size_t size = row_bytes(special.dtype, 1);
        std::memcpy(w.bytes.data() + (33 * kCols + column) * static_cast<int64_t>(size), &special.code, size);
        const std::vector<float> x = random_floats(static_cast<size_t>(tokens * kCols), random);
        const std::vector<float> out = run_linear(*ops, {&w}, x, tokens);
        for (int64_t i = 0; i < tokens * kRows; ++i)
          EXPECT_EQ(std::isfinite(out[static_cast<size_t>(i)]), i % kRows != 33)
              << to_string(special.dtype) << " code " << special.code << " row " << i % kRows;
      }
    }
  }
}

TEST(Linear, Fp8ScalesOfEverySize) {
  std::mt19937 random(10);
  const auto ops = cpu::make_cpu_ops({.threads = 1});
  for (const float scale : {1e-30F, 1e-10F, 200.0F, 300.0F, 1e20F}) {
    RandomMatrix w = random_matrix(DType::f8_e4m3, 64, 256, random, ScaleKind::row);
    for (float& row_scale : w.scale) row_scale *= scale;
    const std::vector<float> x = random_floats(256, random);
    EXPECT_LT(worst_error({&w}, x, 1, run_linear(*ops, {&w}, x, 1)), 1e-6) << scale;
  }
}

TEST(Linear, StackedPartsOfDifferentTypesWithBiases) {
  std::mt19937 random(4);
  const RandomMatrix a = random_matrix(DType::bf16, 19, 256, random, ScaleKind::none, true);
  const RandomMatrix b = random_matrix(DType::q4_k, 9, 256, random);
  const RandomMatrix c = random_matrix(DType::f8_e4m3, 21, 256, random, ScaleKind::block, true);
  const RandomMatrix d = random_matrix(DType::q8_0, 12, 256, random, ScaleKind::none, true);
  for (const bool exact : {true, false}) {
    const auto ops = cpu::make_cpu_ops({.threads = 2, .exact_activations = exact});
    for (const int64_t tokens : {1, 6}) {
      std::vector<float> x = random_floats(static_cast<size_t>(tokens * 256), random);
      // Multiples of 1/127 of a block's largest are exact in 8 bits.
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = i % 32 == 0 ? 1.0F : std::nearbyint(std::tanh(x[i]) * 127.0F) / 127.0F;
      EXPECT_LT(worst_error({&a, &b, &c, &d}, x, tokens, run_linear(*ops, {&a, &b, &c, &d}, x, tokens)),
                2e-6);
    }
  }
}

class LinearOnTarget : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(LinearOnTarget, IsRight) {
  std::mt19937 random(11);
  const auto ops = cpu::make_cpu_ops({.threads = 1});
  const auto expect_right = [&](DType dtype, ScaleKind kind, int64_t cols) {
    for (const int64_t tokens : {1, 5, 8}) {
      RandomMatrix w = random_matrix(dtype, 75, cols, random, kind);
      if (dtype == DType::f16) {  // every code below 2, subnormals among them
        for (size_t i = 0; i < w.bytes.size(); i += 2) {
          const auto code = static_cast<uint16_t>(random() & 0xBFFFU);
          std::memcpy(w.bytes.data() + i, &code, sizeof(code));
        }
      }
      const std::vector<float> x = random_floats(static_cast<size_t>(tokens * cols), random);
      EXPECT_LT(worst_error({&w}, x, tokens, run_linear(*ops, {&w}, x, tokens)), 1e-6)
          << to_string(dtype) << " " << cols << " columns, " << tokens << " tokens";
    }
  };
  for (const DType dtype : kFloatTypes) expect_right(dtype, ScaleKind::none, 531);
  for (const ScaleKind kind : {ScaleKind::tensor, ScaleKind::row, ScaleKind::block})
    expect_right(DType::f8_e4m3, kind, 700);
}

INSTANTIATE_TEST_SUITE_P(Targets, LinearOnTarget, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace kv8::ops
