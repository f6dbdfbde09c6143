#include "ops/cuda/kernels/skinny.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "core/half.h"
#include "numerics/e4m3.h"
#include "ops/cuda/device.h"

namespace kv8::ops::cuda::test {
namespace {

using Finish = SkinnyProduct::Finish;

// A product with random weights, biases and x, and its value in float64.
class Problem {
 public:
  Problem(int64_t n, int64_t k, int rows, WeightScale scale_kind, uint64_t seed)
      : n_(n),
        k_(k),
        rows_(rows),
        kind_(scale_kind),
        x_(random_bf16(static_cast<size_t>(rows * k), seed)),
        bias_(random_normal(static_cast<size_t>(n), seed + 1, 4.0F)),
        device_x_(x_),
        device_bias_(bias_) {
    std::mt19937_64 engine(seed + 2);
    const size_t count = static_cast<size_t>(n * k);
    if (kind_ == WeightScale::none) {
      halves_.resize(count);
      for (uint16_t& half : halves_)
        half = float_to_bf16(static_cast<float>(static_cast<int64_t>(engine())) * 0x1p-63F);
      device_weights_ = std::make_unique<Buffer<uint8_t>>(count * 2);
      require(cudaMemcpy(device_weights_->get(), halves_.data(), count * 2, cudaMemcpyHostToDevice),
              "upload");
      return;
    }
    codes_.resize(count);
    for (uint8_t& code : codes_) {  // every code but NaN
      do {
        code = static_cast<uint8_t>(engine());
      } while ((code & 0x7F) == 0x7F);
    }
    device_weights_ = std::make_unique<Buffer<uint8_t>>(codes_);
    const int64_t scales = kind_ == WeightScale::per_tensor    ? 1
                           : kind_ == WeightScale::per_channel ? n
                                                               : (n + 127) / 128 * ((k + 127) / 128);
    scales_ = random_normal(static_cast<size_t>(scales), seed + 3, 0.01F);
    device_scales_ = std::make_unique<Buffer<float>>(scales_);
  }

  double weight(int64_t row, int64_t column) const {
    const auto at = static_cast<size_t>(row * k_ + column);
    switch (kind_) {
      case WeightScale::none:
        return bf16_to_float(halves_[at]);
      case WeightScale::per_tensor:
        return static_cast<double>(numerics::e4m3_to_float(codes_[at])) * scales_[0];
      case WeightScale::per_channel:
        return static_cast<double>(numerics::e4m3_to_float(codes_[at])) * scales_[static_cast<size_t>(row)];
      default:
        return static_cast<double>(numerics::e4m3_to_float(codes_[at])) *
               scales_[static_cast<size_t>(row / 128 * ((k_ + 127) / 128) + column / 128)];
    }
  }

  double value(int row, int64_t output, bool bias) const {
    double sum = bias ? bias_[static_cast<size_t>(output)] : 0.0;
    for (int64_t i = 0; i < k_; ++i)
      sum += weight(output, i) * static_cast<double>(bf16_to_float(x_[static_cast<size_t>(row * k_ + i)]));
    return sum;
  }

  SkinnyProduct product(bool bias) const {
    SkinnyProduct p;
    p.weights = device_weights_->get();
    p.weight_type = kind_ == WeightScale::none ? DType::bf16 : DType::f8_e4m3;
    p.scale = device_scales_ ? device_scales_->get() : nullptr;
    p.scale_kind = kind_;
    p.n = n_;
    p.k = k_;
    p.x = device_x_.get();
    p.rows = rows_;
    p.bias = bias ? device_bias_.get() : nullptr;
    return p;
  }

 private:
  int64_t n_;
  int64_t k_;
  int rows_;
  WeightScale kind_;
  std::vector<uint16_t> x_;
  std::vector<float> bias_;
  std::vector<uint16_t> halves_;
  std::vector<uint8_t> codes_;
  std::vector<float> scales_;
  Buffer<uint16_t> device_x_;
  Buffer<float> device_bias_;
  std::unique_ptr<Buffer<uint8_t>> device_weights_;
  std::unique_ptr<Buffer<float>> device_scales_;
};

// Zeroed, as the header asks, and of the size that it says, with a mark behind it.
class Workspace {
 public:
  Workspace(int64_t n, int64_t k) : memory_(skinny_workspace_bytes(n, k)) {
    require(cudaMemset(memory_.get(), 0, memory_.count()), "cudaMemset");
  }
  void* get() const { return memory_.get(); }

 private:
  Buffer<uint8_t> memory_;
};

double gate(Finish finish, double x) {
  if (finish == Finish::silu_gate) return x / (1.0 + std::exp(-x));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

void check(int64_t n, int64_t k, int rows, WeightScale kind, Finish finish, bool bias, DType y_type) {
  SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k) + ", rows " + std::to_string(rows) + ", scale " +
               std::to_string(static_cast<int>(kind)) + ", finish " +
               std::to_string(static_cast<int>(finish)));
  const Problem problem(n, k, rows, kind, static_cast<uint64_t>(n * 31 + k + rows));
  const Workspace workspace(n, k);
  const bool gated = finish == Finish::silu_gate || finish == Finish::gelu_gate;
  const int64_t width = gated ? n / 2 : n;
  const std::vector<float> before = random_normal(static_cast<size_t>(rows * width), 91, 100.0F);
  const Buffer<float> y_f32(before);
  const Buffer<uint16_t> y_bf16(static_cast<size_t>(rows * width));
  if (finish != Finish::add) y_f32.poison();
  SkinnyProduct product = problem.product(bias);
  product.finish = finish;
  product.y_type = y_type;
  product.y = y_type == DType::f32 ? static_cast<void*>(y_f32.get()) : y_bf16.get();
  product.workspace = workspace.get();
  run([&](cudaStream_t stream) { return skinny_product(stream, product); });
  const std::vector<float> all = y_type == DType::f32 ? y_f32.download() : from_bf16(y_bf16.download());
  for (float value : all) ASSERT_TRUE(std::isfinite(value));
  // All outputs where there are few, else a sample of them with both ends.
  std::vector<float> result;
  std::vector<double> expected;
  const int64_t step = std::max<int64_t>(1, width * k / 400000);
  for (int64_t i = 0; i < width; i += i + step < width || i + 1 == width ? step : width - 1 - i) {
    for (int row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row * width + i);
      double value = problem.value(row, i, bias);
      if (gated) value = gate(finish, value) * problem.value(row, i + width, bias);
      if (finish == Finish::add) value += before[at];
      expected.push_back(value);
      result.push_back(all[at]);
    }
  }
  EXPECT_LT(relative_error(result, expected), y_type == DType::f32 ? 2e-6 : 2.2e-3);
}

struct Shape {
  int64_t n;
  int64_t k;
};

TEST(Skinny, Bf16MatchesFloat64) {
  for (const Shape& shape : {Shape{1, 32}, Shape{24, 96}, Shape{576, 576}, Shape{1001, 2880},
                             Shape{6144, 4096}, Shape{4096, 14336}, Shape{2048, 512 * 17 + 32}}) {
    for (int rows : {1, 3, 8, 9, 16})
      check(shape.n, shape.k, rows, WeightScale::none, Finish::store, false, DType::f32);
  }
}

TEST(Skinny, Bf16FinishesMatchFloat64) {
  for (int rows : {1, 7, 13, 16}) {
    for (bool bias : {false, true}) {
      check(1008, 1600, rows, WeightScale::none, Finish::store, bias, DType::bf16);
      check(1003, 6144, rows, WeightScale::none, Finish::add, bias, DType::f32);
      check(2064, 1536, rows, WeightScale::none, Finish::silu_gate, bias, DType::bf16);
      check(2064, 5120, rows, WeightScale::none, Finish::gelu_gate, bias, DType::f32);
    }
  }
}

TEST(Skinny, Fp8MatchesFloat64WithEachScale) {
  for (WeightScale kind : {WeightScale::per_tensor, WeightScale::per_channel, WeightScale::per_block}) {
    for (const Shape& shape : {Shape{1, 64}, Shape{576, 576}, Shape{1000, 2880}, Shape{4096, 14336}}) {
      for (int rows : {1, 8, 11}) check(shape.n, shape.k, rows, kind, Finish::store, rows == 8, DType::f32);
    }
    check(1040, 1600, 5, kind, Finish::silu_gate, true, DType::bf16);
    check(1040, 9600, 16, kind, Finish::add, false, DType::f32);
  }
}

TEST(Skinny, IsTheSameEveryTimeAndInAGraph) {
  constexpr int64_t kN = 4096;
  constexpr int64_t kK = 14336;
  const Problem problem(kN, kK, 8, WeightScale::none, 5);
  const Workspace workspace(kN, kK);
  const Buffer<float> y(8 * kN);
  SkinnyProduct product = problem.product(false);
  product.y = y.get();
  product.y_type = DType::f32;
  product.workspace = workspace.get();
  run([&](cudaStream_t stream) { return skinny_product(stream, product); });
  const std::vector<float> first = y.download();
  const Graph graph([&](cudaStream_t stream) {
    Status status;
    for (int i = 0; i < 8 && status; ++i) status = skinny_product(stream, product);
    return status;
  });
  for (int i = 0; i < 20; ++i) {
    y.poison();
    graph.replay();
    ASSERT_EQ(y.download(), first) << i;
  }
}

TEST(Skinny, ARowIsTheSameInAnyCompanyOfUpToEight) {
  const Problem problem(1536, 4096, 8, WeightScale::none, 6);
  const Workspace workspace(1536, 4096);
  const Buffer<float> y(8 * 1536);
  SkinnyProduct product = problem.product(false);
  product.y = y.get();
  product.y_type = DType::f32;
  product.workspace = workspace.get();
  run([&](cudaStream_t stream) { return skinny_product(stream, product); });
  const std::vector<float> all = y.download();
  product.rows = 1;
  run([&](cudaStream_t stream) { return skinny_product(stream, product); });
  const std::vector<float> one = y.download();
  EXPECT_TRUE(std::equal(one.begin(), one.begin() + 1536, all.begin()));
}

// Each product reads what the one before it wrote, overlapped as far as the kernels allow.
TEST(Skinny, AChainOfProductsKeepsItsOrder) {
  constexpr int64_t kWidth = 4096;
  const Problem problem(kWidth, kWidth, 4, WeightScale::none, 7);
  const Workspace workspace(kWidth, kWidth);
  const Buffer<uint16_t> a(random_bf16(4 * kWidth, 8, 0.02F));
  const Buffer<uint16_t> b(4 * kWidth);
  const auto step = [&](cudaStream_t stream, const Buffer<uint16_t>& from, const Buffer<uint16_t>& to) {
    SkinnyProduct product = problem.product(false);
    product.x = from.get();
    product.y = to.get();
    product.workspace = workspace.get();
    return skinny_product(stream, product);
  };
  constexpr int kSteps = 6;  // the numbers grow by 37 each
  const Graph graph([&](cudaStream_t stream) {
    Status status;
    for (int i = 0; i < kSteps && status; ++i) status = i % 2 == 0 ? step(stream, a, b) : step(stream, b, a);
    return status;
  });
  const std::vector<uint16_t> begin = a.download();
  for (int i = 0; i < kSteps; ++i) {
    run([&](cudaStream_t stream) { return i % 2 == 0 ? step(stream, a, b) : step(stream, b, a); });
  }
  const std::vector<uint16_t> one_by_one = a.download();
  for (int repeat = 0; repeat < 20; ++repeat) {
    a.upload(begin);
    b.poison();
    graph.replay();
    ASSERT_EQ(a.download(), one_by_one) << repeat;
  }
}

TEST(Skinny, RefusesWhatItCannotDo) {
  const Buffer<float> memory(4096);
  SkinnyProduct good;
  good.weights = memory.get();
  good.n = 16;
  good.k = 32;
  good.x = memory.get();
  good.rows = 1;
  good.y = memory.get();
  good.workspace = memory.get();
  const auto refused = [&](auto change) {
    SkinnyProduct product = good;
    change(product);
    return !skinny_product(nullptr, product);
  };
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.rows = 17; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.rows = 0; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.k = 40; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.weight_type = DType::f16; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.weight_type = DType::f8_e4m3; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.finish = Finish::add; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) { p.y = nullptr; }));
  EXPECT_TRUE(refused([](SkinnyProduct& p) {
    p.finish = Finish::silu_gate;
    p.n = 24;
  }));
}

}  // namespace
}  // namespace kv8::ops::cuda::test
