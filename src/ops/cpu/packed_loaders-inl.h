// Taking packed weights apart in SIMD registers. Included once per SIMD target, inside its namespace.
//
// A strip is the rows that one register of 32-bit lanes holds: 8 rows of a panel, or 4 where registers have
// 16 bytes. Registers wider than 32 bytes are used by half.
#if defined(KV8_OPS_CPU_PACKED_LOADERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_OPS_CPU_PACKED_LOADERS_INL_H
#undef KV8_OPS_CPU_PACKED_LOADERS_INL_H
#else
#define KV8_OPS_CPU_PACKED_LOADERS_INL_H
#endif

#include <hwy/highway.h>

#include "ops/cpu/packed_weights.h"
#include "ops/cpu/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

constexpr int kStripBytes = HWY_MAX_BYTES < 32 ? HWY_MAX_BYTES : 32;
constexpr int kStripRows = kStripBytes / 4;

using U8 = hn::FixedTag<uint8_t, kStripBytes>;
using I8 = hn::FixedTag<int8_t, kStripBytes>;
using I16 = hn::FixedTag<int16_t, kStripBytes / 2>;
using I32 = hn::FixedTag<int32_t, kStripRows>;
using F32 = hn::FixedTag<float, kStripRows>;
using U8V = hn::Vec<U8>;
using I8V = hn::Vec<I8>;
using I16V = hn::Vec<I16>;
using I32V = hn::Vec<I32>;
using F32V = hn::Vec<F32>;

HWY_INLINE F32V load_halfs(const uint8_t* at) {
  const hn::Rebind<hwy::float16_t, F32> d16;
  return hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(at)));
}
template <class Byte>
HWY_INLINE F32V load_bytes(const uint8_t* at) {
  const hn::Rebind<Byte, F32> d8;
  return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(d8, reinterpret_cast<const Byte*>(at))));
}

// Bits [kShift, ...) of each byte, masked: there are no 8-bit shifts, and what a 16-bit one drags in from the
// neighbour is masked away.
template <int kShift>
HWY_INLINE U8V bits_down(U8V v, uint8_t mask) {
  const hn::Repartition<uint16_t, U8> d16;
  return hn::And(hn::BitCast(U8(), hn::ShiftRight<kShift>(hn::BitCast(d16, v))), hn::Set(U8(), mask));
}
template <int kShift>
HWY_INLINE U8V bits_up(U8V v, uint8_t mask) {
  const hn::Repartition<uint16_t, U8> d16;
  return hn::And(hn::BitCast(U8(), hn::ShiftLeft<kShift>(hn::BitCast(d16, v))), hn::Set(U8(), mask));
}
// Bit kBit of each byte moved to bit kTo.
template <int kBit, int kTo>
HWY_INLINE U8V move_bit(U8V v) {
  if constexpr (kBit >= kTo) return bits_down<kBit - kTo>(v, 1 << kTo);
  return bits_up<(kBit < kTo ? kTo - kBit : 0)>(v, 1 << kTo);
}
// Bits kBit, kBit + 1 moved to kTo, kTo + 1.
template <int kBit, int kTo>
HWY_INLINE U8V move_pair(U8V v) {
  if constexpr (kBit >= kTo) return bits_down<kBit - kTo>(v, 3 << kTo);
  return bits_up<(kBit < kTo ? kTo - kBit : 0)>(v, 3 << kTo);
}

// One strip of a panel of one type. row: the strip's first row in the panel.
template <DType kDType>
struct Loader {
  static constexpr PackedType kType = packed_type(kDType);
  static constexpr int kSubs = kGroupCols / kType.sub_columns;  // weight scales of a group
  // x W = sum over sub-blocks of scale * (codes . x) + minimum * sum(x).
  static constexpr bool kHasMinimum = kType.has_minima || kType.offset != 0;

  F32V d;
  F32V m;

  HWY_INLINE void header(const uint8_t* super, int row) {
    d = load_halfs(super + 2 * row);
    if constexpr (kType.has_minima) m = load_halfs(super + 16 + 2 * row);
  }

  HWY_INLINE void scales(const uint8_t* group, int row, F32V (&scale)[kSubs], F32V (&minimum)[kSubs]) const {
    if constexpr (kDType == DType::q4_k || kDType == DType::q5_k) {
      scale[0] = hn::Mul(d, load_bytes<uint8_t>(group + row));
      minimum[0] = hn::Neg(hn::Mul(m, load_bytes<uint8_t>(group + 8 + row)));
    } else if constexpr (kDType == DType::q2_k) {
      const hn::Rebind<uint8_t, F32> d8;
      KV8_UNROLL
      for (int s = 0; s < 2; ++s) {
        const auto both = hn::PromoteTo(I32(), hn::LoadU(d8, group + 8 * s + row));
        scale[s] = hn::Mul(d, hn::ConvertTo(F32(), hn::And(both, hn::Set(I32(), 15))));
        minimum[s] = hn::Neg(hn::Mul(m, hn::ConvertTo(F32(), hn::ShiftRight<4>(both))));
      }
    } else if constexpr (kSubs == 2) {  // Q3_K, Q6_K
      KV8_UNROLL
      for (int s = 0; s < 2; ++s) scale[s] = hn::Mul(d, load_bytes<int8_t>(group + 8 * s + row));
    } else {
      scale[0] = d;
      if constexpr (kType.has_minima) minimum[0] = m;
    }
    if constexpr (kType.offset != 0) {
      KV8_UNROLL
      for (int s = 0; s < kSubs; ++s) {
        minimum[s] = hn::Mul(scale[s], hn::Set(F32(), -static_cast<float>(kType.offset)));
      }
    }
  }

  // at: the group's codes. quads: signed bytes for Q8_0.
  HWY_INLINE static void codes(const uint8_t* at, int row, U8V (&quads)[8]) {
    const uint8_t* from = at + 4 * row;
    if constexpr (kType.bits == 8) {
      KV8_UNROLL
      for (int q = 0; q < 8; ++q) quads[q] = hn::LoadU(U8(), from + 32 * q);
      return;
    }
    if constexpr (kType.bits >= 4) {
      KV8_UNROLL
      for (int j = 0; j < 4; ++j) {
        const U8V v = hn::LoadU(U8(), from + 32 * j);
        quads[j] = hn::And(v, hn::Set(U8(), 15));
        quads[j + 4] = bits_down<4>(v, 15);
      }
      from += 128;
    } else {
      KV8_UNROLL
      for (int v = 0; v < 2; ++v) {
        const U8V pairs = hn::LoadU(U8(), from + 32 * v);
        quads[4 * v] = move_pair<0, 0>(pairs);
        quads[4 * v + 1] = move_pair<2, 0>(pairs);
        quads[4 * v + 2] = move_pair<4, 0>(pairs);
        quads[4 * v + 3] = move_pair<6, 0>(pairs);
      }
      from += 64;
    }
    if constexpr (kType.bits == 3 || kType.bits == 5) {
      constexpr int kTo = kType.bits - 1;
      const U8V top = hn::LoadU(U8(), from);
      quads[0] = hn::Or(quads[0], move_bit<0, kTo>(top));
      quads[1] = hn::Or(quads[1], move_bit<1, kTo>(top));
      quads[2] = hn::Or(quads[2], move_bit<2, kTo>(top));
      quads[3] = hn::Or(quads[3], move_bit<3, kTo>(top));
      quads[4] = hn::Or(quads[4], move_bit<4, kTo>(top));
      quads[5] = hn::Or(quads[5], move_bit<5, kTo>(top));
      quads[6] = hn::Or(quads[6], move_bit<6, kTo>(top));
      quads[7] = hn::Or(quads[7], move_bit<7, kTo>(top));
    }
    if constexpr (kType.bits == 6) {
      KV8_UNROLL
      for (int v = 0; v < 2; ++v) {
        const U8V pairs = hn::LoadU(U8(), from + 32 * v);
        quads[4 * v] = hn::Or(quads[4 * v], move_pair<0, 4>(pairs));
        quads[4 * v + 1] = hn::Or(quads[4 * v + 1], move_pair<2, 4>(pairs));
        quads[4 * v + 2] = hn::Or(quads[4 * v + 2], move_pair<4, 4>(pairs));
        quads[4 * v + 3] = hn::Or(quads[4 * v + 3], move_pair<6, 4>(pairs));
      }
    }
  }
};

// Sums of two neighbouring products, codes[2i] x[2i] + codes[2i+1] x[2i+1]. Codes are unsigned up to 63, or
// any signed byte (kSigned); x in [-127, 127]. Both fit int16.
template <bool kSigned>
HWY_INLINE I16V pair_products(U8V codes, I8V x) {
#if HWY_TARGET <= HWY_SSSE3 && HWY_ARCH_X86
  if constexpr (kSigned) {  // |w| and x with the sign of w: the instruction takes one unsigned operand
#if HWY_MAX_BYTES >= 32
    return I16V{_mm256_maddubs_epi16(_mm256_abs_epi8(codes.raw), _mm256_sign_epi8(x.raw, codes.raw))};
#else
    return I16V{_mm_maddubs_epi16(_mm_abs_epi8(codes.raw), _mm_sign_epi8(x.raw, codes.raw))};
#endif
  } else {
#if HWY_MAX_BYTES >= 32
    return I16V{_mm256_maddubs_epi16(codes.raw, x.raw)};
#else
    return I16V{_mm_maddubs_epi16(codes.raw, x.raw)};
#endif
  }
#else
  const I16 d;
  const auto w16 = hn::BitCast(d, codes);
  const auto x16 = hn::BitCast(d, x);
  const auto even =
      hn::Mul(hn::ShiftRight<8>(hn::ShiftLeft<8>(w16)), hn::ShiftRight<8>(hn::ShiftLeft<8>(x16)));
  return hn::Add(even, hn::Mul(hn::ShiftRight<8>(w16), hn::ShiftRight<8>(x16)));
#endif
}

HWY_INLINE I32V add_pairs(I16V v) {
#if HWY_TARGET <= HWY_SSSE3 && HWY_ARCH_X86
#if HWY_MAX_BYTES >= 32
  return I32V{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
#else
  return I32V{_mm_madd_epi16(v.raw, _mm_set1_epi16(1))};
#endif
#else
  const auto v32 = hn::BitCast(I32(), v);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(v32)), hn::ShiftRight<16>(v32));
#endif
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
