#include "ops/cpu/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h: it needs its target.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Applies body to whole vectors, and to the rest padded with zeros.
template <class Body>
HWY_INLINE void for_each_vector(const float* a, const float* b, int64_t count, float* out, Body body) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(body(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i == count) return;
  float rest_a[HWY_MAX_BYTES / sizeof(float)] = {};
  float rest_b[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t j = i; j < count; ++j) {
    rest_a[j - i] = a[j];
    rest_b[j - i] = b[j];
  }
  hn::StoreU(body(d, hn::LoadU(d, rest_a), hn::LoadU(d, rest_b)), d, rest_a);
  for (int64_t j = i; j < count; ++j) out[j] = rest_a[j - i];
}

// x / (1 + exp(-s)). Beyond 87 exp(-s) would leave the range of float32; the quotient is below 1e-36 by then.
HWY_INLINE V times_sigmoid(F32 d, V x, V s) {
  const V exponent = hn::Min(hn::Max(hn::Neg(s), hn::Set(d, -87.0F)), hn::Set(d, 87.0F));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), hn::Exp(d, exponent)));
}

void silu_run(const float* gate, const float* up, int64_t count, float* out) {
  for_each_vector(gate, up, count, out,
                  [](F32 d, V g, V u) HWY_ATTR { return hn::Mul(times_sigmoid(d, g, g), u); });
}

// 0.5 x (1 + tanh(u)) = x * sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
void gelu_run(const float* gate, const float* up, int64_t count, float* out) {
  for_each_vector(gate, up, count, out, [](F32 d, V g, V u) HWY_ATTR {
    const V cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715F), hn::Mul(g, g)), g, g);
    return hn::Mul(times_sigmoid(d, g, hn::Mul(hn::Set(d, 1.5957691216F), cubic)), u);
  });
}

void cap_run(float* x, int64_t count, float cap) {
  const float inverse = 1.0F / cap;
  for_each_vector(x, x, count, x, [cap, inverse](F32 d, V v, V) HWY_ATTR {
    return hn::Mul(hn::Set(d, cap), hn::Tanh(d, hn::Mul(v, hn::Set(d, inverse))));
  });
}

void multiply_run(float* x, int64_t count, float factor) {
  for_each_vector(x, x, count, x,
                  [factor](F32 d, V v, V) HWY_ATTR { return hn::Mul(v, hn::Set(d, factor)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::ops::cpu {

HWY_EXPORT(silu_run);
HWY_EXPORT(gelu_run);
HWY_EXPORT(cap_run);
HWY_EXPORT(multiply_run);

void gated_activation_run(Activation activation, const float* gate, const float* up, int64_t count,
                          float* out) {
  switch (activation) {
    case Activation::silu:
      return HWY_DYNAMIC_DISPATCH(silu_run)(gate, up, count, out);
    case Activation::gelu_tanh:
      return HWY_DYNAMIC_DISPATCH(gelu_run)(gate, up, count, out);
  }
}

void soft_cap_run(float* x, int64_t count, float cap) {
  HWY_DYNAMIC_DISPATCH(cap_run)(x, count, cap);
}

void scale_run(float* x, int64_t count, float factor) {
  HWY_DYNAMIC_DISPATCH(multiply_run)(x, count, factor);
}

}  // namespace kv8::ops::cpu
#endif  // HWY_ONCE
