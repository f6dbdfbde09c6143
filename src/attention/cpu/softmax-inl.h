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

// cap * tanh(x / cap), by tanh(y) = 1 - 2 / (e^2y + 1). Near 0 the error is absolute: about 1e-7 * cap.
template <class D>
HWY_INLINE hn::Vec<D> soft_cap(D d, hn::Vec<D> x, float cap) {
  const auto y = hn::Mul(x, hn::Set(d, 2.0F / cap));
  // A comparison, not Min, so that NaN stays NaN. Beyond e^40 tanh is 1.
  const auto bounded = hn::IfThenElse(hn::Gt(y, hn::Set(d, 40.0F)), hn::Set(d, 40.0F), y);
  const auto exponential = numerics::HWY_NAMESPACE::exp(d, bounded);
  const auto one = hn::Set(d, 1.0F);
  const auto tanh = hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(exponential, one)));
  return hn::Mul(hn::Set(d, cap), tanh);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
