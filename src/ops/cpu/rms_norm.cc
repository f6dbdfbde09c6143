#include "ops/cpu/rms_norm.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rms_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;

float inverse_rms(const float* x, float epsilon, int64_t cols) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  auto more_sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= cols; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + i + lanes);
    sums = hn::MulAdd(a, a, sums);
    more_sums = hn::MulAdd(b, b, more_sums);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sums, more_sums)));
  for (; i < cols; ++i) sum += x[i] * x[i];
  return 1.0F / std::sqrt(sum / static_cast<float>(cols) + epsilon);
}

void norm_row(const float* x, const float* weight, float epsilon, int64_t cols, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float factor = inverse_rms(x, epsilon, cols);
  const auto factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), factors), hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < cols; ++i) out[i] = x[i] * factor * weight[i];
}

void add_norm_row(float* residual, const float* x, const float* post_weight, const float* weight,
                  float epsilon, int64_t cols, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (post_weight == nullptr) {
    for (; i + lanes <= cols; i += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, x + i)), d, residual + i);
    }
    for (; i < cols; ++i) residual[i] += x[i];
  } else {
    const float factor = inverse_rms(x, epsilon, cols);
    const auto factors = hn::Set(d, factor);
    for (; i + lanes <= cols; i += lanes) {
      const auto normed = hn::Mul(hn::Mul(hn::LoadU(d, x + i), factors), hn::LoadU(d, post_weight + i));
      hn::StoreU(hn::Add(hn::LoadU(d, residual + i), normed), d, residual + i);
    }
    for (; i < cols; ++i) residual[i] += x[i] * factor * post_weight[i];
  }
  norm_row(residual, weight, epsilon, cols, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::ops::cpu {

HWY_EXPORT(norm_row);
HWY_EXPORT(add_norm_row);

void rms_norm_row(const float* x, const float* weight, float epsilon, int64_t cols, float* out) {
  HWY_DYNAMIC_DISPATCH(norm_row)(x, weight, epsilon, cols, out);
}

void add_rms_norm_row(float* residual, const float* x, const float* post_weight, const float* weight,
                      float epsilon, int64_t cols, float* out) {
  HWY_DYNAMIC_DISPATCH(add_norm_row)(residual, x, post_weight, weight, epsilon, cols, out);
}

}  // namespace kv8::ops::cpu
#endif  // HWY_ONCE
