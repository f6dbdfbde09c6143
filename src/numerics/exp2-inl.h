// 2^x for one SIMD vector, compiled once per target: included from .cc files after hwy/highway.h (so the
// guard below instead of #pragma once).
#if defined(KV8_NUMERICS_EXP2_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_NUMERICS_EXP2_INL_H_
#undef KV8_NUMERICS_EXP2_INL_H_
#else
#define KV8_NUMERICS_EXP2_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::numerics {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// 2^(whole + r), whole an integer, r in [-1/2, 1/2]. The polynomial interpolates 2^r at the seven Chebyshev
// nodes: its error (2e-9) is far below the rounding of its evaluation. whole in [-126, 127].
template <class D>
HWY_INLINE hn::Vec<D> exp2_parts(D d, hn::Vec<D> whole, hn::Vec<D> r) {
  const hn::RebindToSigned<D> di;
  auto p = hn::Set(d, 0x1.444p-13F);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.5f48cp-10F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.3b2a1cp-7F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.c6aeccp-5F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.ebfbep-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.62e43p-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0F));
  // A multiplication, not an addition to p's exponent field, so that a NaN in p survives whatever n is then.
  const auto n = hn::ConvertTo(di, whole);
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
  return hn::Mul(p, power);
}

// x <= 127; 0 below -126.
template <class D>
HWY_INLINE hn::Vec<D> exp2(D d, hn::Vec<D> x) {
  const auto whole = hn::Round(x);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0F)), exp2_parts(d, whole, hn::Sub(x, whole)));
}

// e^x = 2^(x log2 e). The product is formed in two parts, so that its rounding, which would grow with x, is
// gone from the fraction. x <= 88; 0 below -87.7.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  const auto high = hn::Set(d, 0x1.715476p+0F);
  const auto low = hn::Set(d, 0x1.4ae0cp-26F);
  const auto whole = hn::Round(hn::Mul(x, high));
  const auto fraction = hn::MulAdd(x, low, hn::MulSub(x, high, whole));
  return hn::IfThenZeroElse(hn::Lt(whole, hn::Set(d, -126.0F)), exp2_parts(d, whole, fraction));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::numerics
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
