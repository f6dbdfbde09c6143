// The small operations of the CPU backend, through the interface a model uses, against float64.
#include "ops/cpu/cpu_ops.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace kv8::ops::cpu {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_floats(int64_t count, uint32_t seed, float scale = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.1F, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

Activations view(std::vector<float>& values, int64_t rows) {
  return host_activations(values.data(), rows, static_cast<int64_t>(values.size()) / rows);
}

TensorView tensor(const std::vector<float>& values, const Shape& shape) {
  return {DType::f32, shape, reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(float)};
}

class CpuOpsTest : public testing::Test {
 protected:
  std::unique_ptr<Vector> vector(const std::vector<float>& values, float offset = 0.0F) {
    return ops_->load_vector("v", tensor(values, Shape{static_cast<int64_t>(values.size())}), offset).value();
  }

  std::unique_ptr<Ops> ops_ = make_cpu_ops({.threads = 2});
};

// rms_norm(x) * (weight + offset) of one row in float64.
std::vector<double> norm_row(const double* x, const std::vector<float>& weight, double offset,
                             double epsilon) {
  const size_t size = weight.size();
  double squares = 0;
  for (size_t i = 0; i < size; ++i) squares += x[i] * x[i];
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(size) + epsilon);
  std::vector<double> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = x[i] * factor * (weight[i] + offset);
  return out;
}

TEST_F(CpuOpsTest, RmsNormWithAnOffset) {
  for (const int64_t cols : {1, 7, 64, 577}) {
    constexpr int64_t kRows = 5;
    auto x = random_floats(kRows * cols, 1, 30.0F);
    const auto weight = random_floats(cols, 2);
    std::vector<float> out(x.size(), kPoison);
    ops_->rms_norm(view(x, kRows), *vector(weight, 1.0F), 1e-5F, view(out, kRows));
    for (int64_t row = 0; row < kRows; ++row) {
      const std::vector<double> in(x.begin() + row * cols, x.begin() + (row + 1) * cols);
      const auto right = norm_row(in.data(), weight, 1.0, 1e-5);
      for (int64_t i = 0; i < cols; ++i)
        EXPECT_NEAR(out[row * cols + i], right[i], 1e-5 * (1 + std::abs(right[i])));
    }
  }
}

TEST_F(CpuOpsTest, AddRmsNormWithAndWithoutPostNorm) {
  for (const bool post : {false, true}) {
    constexpr int64_t kRows = 3, kCols = 129;
    auto residual = random_floats(kRows * kCols, 3);
    auto x = random_floats(kRows * kCols, 4, 5.0F);
    const auto post_weight = random_floats(kCols, 5);
    const auto weight = random_floats(kCols, 6);
    const auto before = residual;
    std::vector<float> out(x.size(), kPoison);
    const auto post_norm = vector(post_weight);
    ops_->add_rms_norm(view(residual, kRows), view(x, kRows), post ? post_norm.get() : nullptr,
                       *vector(weight), 1e-6F, view(out, kRows));
    for (int64_t row = 0; row < kRows; ++row) {
      const std::vector<double> in(x.begin() + row * kCols, x.begin() + (row + 1) * kCols);
      const auto branch = post ? norm_row(in.data(), post_weight, 0, 1e-6) : in;
      std::vector<double> sum(kCols);
      for (int64_t i = 0; i < kCols; ++i) {
        sum[i] = before[row * kCols + i] + branch[i];
        EXPECT_NEAR(residual[row * kCols + i], sum[i], 1e-5 * (1 + std::abs(sum[i])));
      }
      const auto right = norm_row(sum.data(), weight, 0, 1e-6);
      for (int64_t i = 0; i < kCols; ++i)
        EXPECT_NEAR(out[row * kCols + i], right[i], 1e-5 * (1 + std::abs(right[i])));
    }
  }
}

TEST_F(CpuOpsTest, GatedActivationsFarOutToo) {
  constexpr int64_t kRows = 2, kCols = 67;
  auto gate_up = random_floats(kRows * 2 * kCols, 7, 4.0F);
  gate_up[0] = 100.0F;
  gate_up[1] = -100.0F;
  gate_up[2] = 1e4F;
  gate_up[3] = -1e4F;
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    std::vector<float> out(kRows * kCols, kPoison);
    ops_->gated_activation(activation, view(gate_up, kRows), view(out, kRows));
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kCols; ++i) {
        const double gate = gate_up[row * 2 * kCols + i];
        const double up = gate_up[row * 2 * kCols + kCols + i];
        const double inner = std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
        const double active = activation == Activation::silu ? gate / (1 + std::exp(-gate))
                                                             : 0.5 * gate * (1 + std::tanh(inner));
        EXPECT_NEAR(out[row * kCols + i], active * up, 2e-6 * (1 + std::abs(active * up))) << gate;
      }
    }
  }
}

TEST_F(CpuOpsTest, EmbedGatherAndSoftCap) {
  const auto table_values = random_floats(10 * 33, 8);
  const MatrixPart part{"table", tensor(table_values, Shape{10, 33}), {}, {}};
  const auto table = ops_->load_matrix({&part, 1}).value();
  const std::vector<int32_t> tokens = {9, 0, 3, 3};
  kv_cache::CacheLayer layer;
  layer.kv_heads = 1;
  layer.k_dim = layer.v_dim = 64;
  const auto plan = kv_cache::make_cache_plan({layer}).value();
  const std::vector<int64_t> pages = {1};
  ASSERT_TRUE(ops_->allocate_cache(plan, pages).has_value());
  const int32_t page = 0;
  const StepSequence sequence{0, 4, 0, {&page}};
  ASSERT_TRUE(ops_->begin_step({tokens, {&sequence, 1}}).has_value());
  std::vector<float> out(4 * 33, kPoison);
  ops_->embed(*table, 2.5F, view(out, 4));
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 0; i < 33; ++i)
      EXPECT_EQ(out[row * 33 + i], 2.5F * table_values[static_cast<size_t>(tokens[row]) * 33 + i]);
  }
  std::vector<float> gathered(2 * 33, kPoison);
  const std::vector<int32_t> rows = {3, 0};
  ops_->gather_rows(view(out, 4), rows, view(gathered, 2));
  for (size_t i = 0; i < 33; ++i) {
    EXPECT_EQ(gathered[i], out[3 * 33 + i]);
    EXPECT_EQ(gathered[33 + i], out[i]);
  }
  ops_->soft_cap(view(gathered, 2), 3.0F);
  for (size_t i = 0; i < 33; ++i) EXPECT_NEAR(gathered[i], 3.0 * std::tanh(out[3 * 33 + i] / 3.0), 1e-6);
}

struct RopeCase {
  bool interleaved;
  int rotary_dims;
  bool norms;
};

// Norm and rotation of Q, every kind. K goes through the same code; the golden models see to its place in the
// cache.
TEST_F(CpuOpsTest, RopeOfEveryKind) {
  constexpr int kHeadDim = 64, kQHeads = 4, kKvHeads = 2;
  for (const RopeCase& one : {RopeCase{false, 64, false}, RopeCase{true, 64, false},
                              RopeCase{false, 16, true}, RopeCase{true, 32, true}}) {
    auto ops = make_cpu_ops({.threads = 2});
    kv_cache::CacheLayer layer;
    layer.format = kv_cache::KvFormat::f32;
    layer.kv_heads = kKvHeads;
    layer.k_dim = layer.v_dim = kHeadDim;
    const auto plan = kv_cache::make_cache_plan({layer}).value();
    const std::vector<int64_t> pages = {80};
    ASSERT_TRUE(ops->allocate_cache(plan, pages).has_value());
    std::vector<int32_t> table(80);
    for (int32_t i = 0; i < 80; ++i) table[static_cast<size_t>(i)] = 79 - i;

    Rope rope;
    rope.interleaved = one.interleaved;
    rope.magnitude = 1.25F;
    for (int i = 0; i < one.rotary_dims / 2; ++i) {
      rope.inverse_frequencies.push_back(static_cast<float>(std::pow(10'000.0, -2.0 * i / one.rotary_dims)));
    }
    const auto norm_weight = random_floats(kHeadDim, 9);
    const auto norm = ops->load_vector("n", tensor(norm_weight, Shape{kHeadDim}), 0).value();
    AttentionLayer attention;
    attention.q_heads = kQHeads;
    attention.kv_heads = kKvHeads;
    attention.head_dim = kHeadDim;
    attention.rope = &rope;
    attention.norm_epsilon = 1e-6F;
    attention.softmax_scale = 0.125F;
    if (one.norms) attention.q_norm = attention.k_norm = norm.get();

    constexpr int64_t kRows = 3, kFirst = 9'000;
    auto qkv = random_floats(kRows * (kQHeads + 2 * kKvHeads) * kHeadDim, 10);
    const auto raw = qkv;
    std::vector<float> q(kRows * kQHeads * kHeadDim, kPoison);
    const std::vector<int32_t> tokens(kRows, 0);
    const StepSequence sequence{0, kRows, kFirst, {table.data()}};
    ASSERT_TRUE(ops->begin_step({tokens, {&sequence, 1}}).has_value());
    ASSERT_TRUE(ops->rope_append_kv(attention, view(qkv, kRows), view(q, kRows)).has_value());
    for (int64_t row = 0; row < kRows; ++row) {
      for (int head = 0; head < kQHeads; ++head) {
        const float* from = raw.data() + (row * (kQHeads + 2 * kKvHeads) + head) * kHeadDim;
        std::vector<double> x(from, from + kHeadDim);
        if (one.norms) x = norm_row(x.data(), norm_weight, 0, 1e-6);
        for (int i = 0; i < one.rotary_dims / 2; ++i) {
          const size_t a = one.interleaved ? 2 * i : i;
          const size_t b = one.interleaved ? 2 * i + 1 : i + one.rotary_dims / 2;
          // The angle is a float32, as transformers computes it.
          const double angle =
              static_cast<float>(kFirst + row) * rope.inverse_frequencies[static_cast<size_t>(i)];
          const double cosine = std::cos(angle) * 1.25, sine = std::sin(angle) * 1.25;
          const double left = x[a] * cosine - x[b] * sine;
          x[b] = x[b] * cosine + x[a] * sine;
          x[a] = left;
        }
        for (int i = 0; i < kHeadDim; ++i) {
          EXPECT_NEAR(q[(row * kQHeads + head) * kHeadDim + i], x[static_cast<size_t>(i)], 2e-5)
              << row << " " << head << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kv8::ops::cpu
