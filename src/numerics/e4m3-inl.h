// e4m3 codes widened to float32 in registers. Compiled once per target.
#if defined(KV8_NUMERICS_E4M3_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_NUMERICS_E4M3_INL_H_
#undef KV8_NUMERICS_E4M3_INL_H_
#else
#define KV8_NUMERICS_E4M3_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::numerics {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A code's bits at their place in a float16 stand for its number * 2^-8, subnormals included, and a float16
// is widened exactly. Nowhere is there a subnormal float32, with which a multiplication costs x86 processors
// of one maker a hundred cycles. NaN codes come out as +-480 * 2^-8: callers look for them.
constexpr int kWidenedExponent = 8;

// The upper code of each 16-bit lane (signed, so that the sign is shifted along), as a float16.
template <class D16>
HWY_INLINE hn::Vec<D16> upper_e4m3_as_half(D16 d16, hn::Vec<D16> codes) {
  return hn::And(hn::ShiftRight<1>(codes), hn::Set(d16, static_cast<int16_t>(0xBF80)));
}
// The lower one.
template <class D16>
HWY_INLINE hn::Vec<D16> lower_e4m3_as_half(D16 d16, hn::Vec<D16> codes) {
  return upper_e4m3_as_half(d16, hn::ShiftLeft<8>(codes));
}

// What the two above have made, times 2^-kWidenedExponent as they say.
template <class D>
HWY_INLINE hn::Vec<D> widen_e4m3_half(D d, hn::Vec<hn::Rebind<int16_t, D>> half) {
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64  // one or two instructions
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), half));
#else
  // With the exponent's bias added a normal number is right. A subnormal one, which then lies below 2^-14,
  // has a leading one too many: 2x - 2^-14 takes it away, and is larger than x wherever x is above 2^-14.
  const hn::RebindToSigned<D> di;
  const auto bits = hn::ShiftLeft<13>(hn::PromoteTo(di, half));
  const auto sign = hn::And(bits, hn::Set(di, static_cast<int32_t>(0x80000000U)));
  const auto x = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(di, 0x07F00000)), hn::Set(di, 112 << 23)));
  const auto magnitude = hn::Min(x, hn::Add(x, hn::Sub(x, hn::Set(d, 0x1p-14F))));
  return hn::Or(magnitude, hn::BitCast(d, sign));
#endif
}

// As many codes as d has lanes, in their order, times 2^-kWidenedExponent.
template <class D>
HWY_INLINE hn::Vec<D> widen_e4m3(D d, const uint8_t* codes) {
  const hn::Rebind<int16_t, D> d16;
  const hn::Rebind<int8_t, D> d8;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
  return widen_e4m3_half(d, hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xBF80))));
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::numerics
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
