// The soft cap of scores, for one SIMD vector. Compiled once per target.
#if defined(KV8_ATTENTION_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_ATTENTION_SOFTMAX_INL_H_
#undef KV8_ATTENTION_SOFTMAX_INL_H_
#else
#define KV8_ATTENTION_SOFTMAX_INL_H_
#endif

#include <hwy/highway.h>

#include "numerics/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::attention::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kLog2E = 1.44269504088896341F;

// cap * tanh(x / cap), by tanh(y) = 1 - 2 / (e^2y + 1). Near 0 the error is absolute: about 1e-7 * cap.
template <class D>
HWY_INLINE hn::Vec<D> soft_cap(D d, hn::Vec<D> x, float cap) {
  const auto y = hn::Mul(x, hn::Set(d, 2.0F * kLog2E / cap));
  // A comparison, not Min, so that NaN stays NaN. Beyond 2^60 tanh is 1.
  const auto bounded = hn::IfThenElse(hn::Gt(y, hn::Set(d, 60.0F)), hn::Set(d, 60.0F), y);
  const auto exponential = numerics::HWY_NAMESPACE::exp2(d, bounded);
  const auto one = hn::Set(d, 1.0F);
  const auto tanh = hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(exponential, one)));
  return hn::Mul(hn::Set(d, cap), tanh);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
