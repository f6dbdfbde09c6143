// Stored keys or values, widened to float32 in registers. Compiled once per target.
#if defined(KV8_ATTENTION_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_ATTENTION_WIDEN_INL_H_
#undef KV8_ATTENTION_WIDEN_INL_H_
#else
#define KV8_ATTENTION_WIDEN_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "numerics/e4m3-inl.h"
#include "numerics/e4m3.h"
#include "numerics/half.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::attention::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each format gives stored number * 2^-kExponent, exactly, in two ways. load() widens a vector in the order
// it is stored. load_pair() is cheaper: it takes two vectors at once, in the order that costs the fewest
// instructions; source() says where the numbers of vector `vector` of a pair came from. widen() is for one
// number, itself.
struct WidenF32 {
  using Stored = float;
  static constexpr int kExponent = 0;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Stored* from) {
    return hn::LoadU(d, from);
  }
  template <class D>
  static HWY_INLINE void load_pair(D d, const Stored* from, hn::Vec<D>& first, hn::Vec<D>& second) {
    first = hn::LoadU(d, from);
    second = hn::LoadU(d, from + hn::Lanes(d));
  }
  static size_t source(size_t lanes, size_t vector, size_t lane) { return vector * lanes + lane; }
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
  // A lane holds two numbers; each is one instruction away from its float.
  template <class D>
  static HWY_INLINE void load_pair(D d, const Stored* from, hn::Vec<D>& first, hn::Vec<D>& second) {
    const hn::RebindToUnsigned<D> du;
    const auto both = hn::BitCast(du, hn::LoadU(hn::Repartition<uint16_t, D>(), from));
    first = hn::BitCast(d, hn::ShiftLeft<16>(both));
    second = hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000U)));
  }
  static size_t source(size_t /*lanes*/, size_t vector, size_t lane) { return 2 * lane + vector; }
  static float widen(Stored code) { return numerics::bf16_to_float(code); }
};

// NaN codes come out as +-480 * 2^-8; callers look for them first.
struct WidenFp8 {
  using Stored = uint8_t;
  static constexpr int kExponent = numerics::HWY_NAMESPACE::kWidenedExponent;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Stored* from) {
    return numerics::HWY_NAMESPACE::widen_e4m3(d, from);
  }
  // A 16-bit lane holds two codes; both become floats without moving across lanes before they are widened.
  template <class D>
  static HWY_INLINE void load_pair(D d, const Stored* from, hn::Vec<D>& first, hn::Vec<D>& second) {
    namespace kernels = numerics::HWY_NAMESPACE;
    const hn::Rebind<int16_t, D> d16;
    const auto codes = hn::BitCast(d16, hn::LoadU(hn::Repartition<uint8_t, decltype(d16)>(), from));
    first = kernels::widen_e4m3_half(d, kernels::lower_e4m3_as_half(d16, codes));
    second = kernels::widen_e4m3_half(d, kernels::upper_e4m3_as_half(d16, codes));
  }
  static size_t source(size_t /*lanes*/, size_t vector, size_t lane) { return 2 * lane + vector; }
  static float widen(Stored code) { return numerics::e4m3_to_float(code); }
};

// What undoes kExponent.
template <class W>
constexpr float widened_unit() {
  return static_cast<float>(1 << W::kExponent);
}

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
