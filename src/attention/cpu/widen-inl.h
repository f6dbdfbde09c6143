// One vector of stored keys or values, widened to float32. Compiled once per target.
#if defined(KV8_ATTENTION_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_ATTENTION_WIDEN_INL_H_
#undef KV8_ATTENTION_WIDEN_INL_H_
#else
#define KV8_ATTENTION_WIDEN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "numerics/e4m3.h"
#include "numerics/half.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::attention::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each format: load() gives stored number * 2^-kExponent, exactly, subnormals included; widen() the number
// itself.
struct WidenF32 {
  using Stored = float;
  static constexpr int kExponent = 0;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Stored* from) {
    return hn::LoadU(d, from);
  }
  static float widen(Stored code) { return code; }
};

struct WidenBf16 {
  using Stored = uint16_t;
  static constexpr int kExponent = 0;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Stored* from) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  }
  static float widen(Stored code) { return numerics::bf16_to_float(code); }
};

// An e4m3 code's bits at their place in a float stand for value * 2^-120: three instructions a vector, where
// a multiplication and a test for NaN would double that. NaN codes come out as +-480; callers look for them
// first.
struct WidenFp8 {
  using Stored = uint8_t;
  static constexpr int kExponent = 120;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Stored* from) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<int8_t, D> d8;
    // The sign extension puts copies of the sign above the code: one of them lands on the float's sign bit.
    const auto code = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const int8_t*>(from)));
    return hn::BitCast(d, hn::And(hn::ShiftLeft<20>(code), hn::Set(di, static_cast<int32_t>(0x87F00000U))));
  }
  static float widen(Stored code) { return numerics::e4m3_to_float(code); }
};

// Whether a run of codes has an e4m3 NaN in it. Twice a NaN's code is 0xFE, and no other code's double is
// above 0xFC.
HWY_INLINE bool has_e4m3_nan(const uint8_t* codes, size_t count) {
  const hn::ScalableTag<uint8_t> d;
  auto largest = hn::Zero(d);
  auto largest_odd = largest;
  size_t i = 0;
  for (; i + 2 * hn::Lanes(d) <= count; i += 2 * hn::Lanes(d)) {
    const auto even = hn::LoadU(d, codes + i);
    const auto odd = hn::LoadU(d, codes + i + hn::Lanes(d));
    largest = hn::Max(largest, hn::Add(even, even));
    largest_odd = hn::Max(largest_odd, hn::Add(odd, odd));
  }
  bool found = !hn::AllFalse(d, hn::Eq(hn::Max(largest, largest_odd), hn::Set(d, 0xFE)));
  for (; i < count; ++i) found |= (codes[i] & 0x7F) == 0x7F;
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
