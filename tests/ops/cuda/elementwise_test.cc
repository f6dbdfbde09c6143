#include "ops/cuda/kernels/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "core/half.h"
#include "ops/cuda/device.h"

namespace kv8::ops::cuda::test {
namespace {

TEST(Embed, PicksRowsOfEachTypeAndZeroesPaddingRows) {
  constexpr int64_t kVocab = 37;
  const std::vector<int32_t> tokens = {0, 36, 5, -1, 5, 37, 17};
  const Buffer<int32_t> device_tokens(tokens);
  for (int64_t cols : {8, 576, 4096, 5120}) {
    const auto count = static_cast<size_t>(kVocab * cols);
    const std::vector<float> values =
        from_bf16(random_bf16(count, 3));  // exact in bf16, f32 and, nearly, f16
    std::vector<uint16_t> halves(count);
    std::vector<float> from_halves(count);
    for (size_t i = 0; i < count; ++i) {
      halves[i] = float_to_f16(values[i]);
      from_halves[i] = f16_to_float(halves[i]);
    }
    const Buffer<uint16_t> bf16(to_bf16(values));
    const Buffer<uint16_t> f16(halves);
    const Buffer<float> f32(values);
    struct Case {
      DType type;
      const void* table;
      const std::vector<float>* expected;
    };
    for (const Case& c : {Case{DType::bf16, bf16.get(), &values}, Case{DType::f16, f16.get(), &from_halves},
                          Case{DType::f32, f32.get(), &values}}) {
      const Buffer<float> out(tokens.size() * static_cast<size_t>(cols));
      run([&](cudaStream_t stream) {
        return embed(stream, c.table, c.type, kVocab, device_tokens.get(), 1.5F,
                     static_cast<int64_t>(tokens.size()), cols, out.get());
      });
      const std::vector<float> result = out.download();
      for (size_t r = 0; r < tokens.size(); ++r) {
        const bool is_token = tokens[r] >= 0 && tokens[r] < kVocab;
        for (int64_t i = 0; i < cols; ++i) {
          const float expected =
              is_token ? 1.5F * (*c.expected)[static_cast<size_t>(tokens[r] * cols + i)] : 0.0F;
          ASSERT_EQ(result[r * static_cast<size_t>(cols) + static_cast<size_t>(i)], expected)
              << to_string(c.type) << " row " << r << " column " << i;
        }
      }
    }
  }
}

TEST(Embed, AGraphFollowsTheTokens) {
  const std::vector<float> table = random_normal(16 * 64, 5);
  const Buffer<float> device_table(table);
  const Buffer<int32_t> tokens(std::vector<int32_t>{1, 2});
  const Buffer<float> out(2 * 64);
  const Graph graph([&](cudaStream_t stream) {
    return embed(stream, device_table.get(), DType::f32, 16, tokens.get(), 1.0F, 2, 64, out.get());
  });
  tokens.upload({9, 15});
  graph.replay();
  const std::vector<float> result = out.download();
  EXPECT_TRUE(std::equal(result.begin(), result.begin() + 64, table.begin() + 9 * 64));
  EXPECT_TRUE(std::equal(result.begin() + 64, result.end(), table.begin() + 15 * 64));
}

TEST(GatherRows, CopiesAndZeroes) {
  const std::vector<uint16_t> x = random_bf16(11 * 72, 7);
  const Buffer<uint16_t> device_x(x);
  const std::vector<int32_t> rows = {10, 0, 0, -1, 11, 4};
  const Buffer<int32_t> device_rows(rows);
  const Buffer<uint16_t> out(rows.size() * 72);
  run([&](cudaStream_t stream) {
    return gather_rows(stream, device_x.get(), 11, device_rows.get(), static_cast<int64_t>(rows.size()),
                       72 * 2, out.get());
  });
  const std::vector<uint16_t> result = out.download();
  for (size_t i = 0; i < result.size(); ++i) {
    const int32_t row = rows[i / 72];
    ASSERT_EQ(result[i], row >= 0 && row < 11 ? x[static_cast<size_t>(row) * 72 + i % 72] : 0) << i;
  }
}

double reference_gate(Gate gate, double x) {
  if (gate == Gate::silu) return x / (1.0 + std::exp(-x));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(GatedActivation, MatchesFloat64) {
  for (Gate gate : {Gate::silu, Gate::gelu_tanh}) {
    for (int64_t n : {8, 1536, 14336}) {
      const int64_t rows = n > 10000 ? 33 : 5;
      std::vector<uint16_t> x = random_bf16(static_cast<size_t>(rows * 2 * n), 11, 4.0F);
      // Far out on both sides, where e^-x overflows.
      for (size_t i = 0; i < 8; ++i) {
        x[i] = float_to_bf16((i % 2 == 0 ? 1.0F : -1.0F) * std::pow(10.0F, static_cast<float>(i) * 0.6F));
      }
      const Buffer<uint16_t> device_x(x);
      const Buffer<uint16_t> out(static_cast<size_t>(rows * n));
      run([&](cudaStream_t stream) {
        return gated_activation(stream, gate, device_x.get(), rows, n, out.get());
      });
      const std::vector<float> result = from_bf16(out.download());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t i = 0; i < n; ++i) {
          const size_t at = static_cast<size_t>(r * 2 * n + i);
          const double expected = reference_gate(gate, bf16_to_float(x[at])) *
                                  static_cast<double>(bf16_to_float(x[at + static_cast<size_t>(n)]));
          ASSERT_NEAR(result[static_cast<size_t>(r * n + i)], expected,
                      std::abs(expected) * 0x1.05p-8 + 1e-6)  // half a step of bf16, and a little
              << "n " << n << " row " << r << " column " << i;
        }
      }
    }
  }
}

TEST(SoftCap, CapsAndWidens) {
  std::vector<float> x = random_normal(8 * 1001, 13, 40.0F);
  x[3] = 1e30F;
  x[4] = -1e30F;
  x[5] = std::numeric_limits<float>::infinity();
  const std::vector<uint16_t> bits = to_bf16(x);
  const Buffer<uint16_t> device_bits(bits);
  const Buffer<float> device_x(x);
  const Buffer<float> out(x.size());
  for (float cap : {0.0F, 30.0F}) {
    for (DType type : {DType::bf16, DType::f32}) {
      out.poison();
      run([&](cudaStream_t stream) {
        return soft_cap(stream,
                        type == DType::bf16 ? static_cast<const void*>(device_bits.get()) : device_x.get(),
                        type, static_cast<int64_t>(x.size()), cap, out.get());
      });
      const std::vector<float> result = out.download();
      for (size_t i = 0; i < x.size(); ++i) {
        const float in = type == DType::bf16 ? bf16_to_float(bits[i]) : x[i];
        if (cap == 0.0F) {
          ASSERT_EQ(result[i], in);
        } else {
          ASSERT_NEAR(result[i], cap * std::tanh(static_cast<double>(in) / cap), 1e-5) << in;
        }
      }
    }
  }
}

TEST(Elementwise, RefusesWhatItCannotDo) {
  const Buffer<float> memory(64);
  const Buffer<int32_t> tokens(std::vector<int32_t>{0});
  EXPECT_FALSE(embed(nullptr, memory.get(), DType::f32, 1, tokens.get(), 1.0F, 1, 9, memory.get()));
  EXPECT_FALSE(embed(nullptr, memory.get(), DType::f8_e4m3, 1, tokens.get(), 1.0F, 1, 8, memory.get()));
  EXPECT_FALSE(gather_rows(nullptr, memory.get(), 1, tokens.get(), 1, 12, memory.get()));
  EXPECT_FALSE(gated_activation(nullptr, Gate::silu, memory.get() + 1, 1, 8, memory.get()));
  EXPECT_FALSE(
      soft_cap(nullptr, memory.get(), DType::f32, 8, std::numeric_limits<float>::quiet_NaN(), memory.get()));
}

}  // namespace
}  // namespace kv8::ops::cuda::test
