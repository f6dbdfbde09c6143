#include "numerics/hopper_accumulator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "numerics/e4m3.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/hopper_accumulator.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// The fast form counts in ticks of 2^(E-13), one E per column. A product of two widened values is exact in
// float32; multiplied by 2^(13-E) and converted to an integer it is truncated toward zero to whole ticks. At
// most 32 * 28,800 + 16,383 ticks are added, so int32 holds the sum, and a float holds it exactly as well;
// the last truncation then clears the 10 lowest mantissa bits of that float.
//
// The multiplication by 2^(13-E) is an integer addition to the exponent field, which any port of a core can
// do. A product that is zero has no exponent to add to; so row operands carry a factor of 2^-40, which the
// addition takes back: a zero then turns into less than one tick, and vanishes.

#ifndef KV8_NUMERICS_HOPPER_CONSTANTS
#define KV8_NUMERICS_HOPPER_CONSTANTS
namespace kv8::numerics {

constexpr int kRowScaleExponent = 40;
// Exponents of operands that have none. Sums saturate to int8: two zeros give -128, zero and a number at most
// -56, below every real sum (-12 to 16); NaN with anything, 63 or more, above.
constexpr int8_t kZeroExponent = -64;
constexpr int8_t kNanExponent = 127;
constexpr int kLargestExponent = 60;  // of products (16) and of C
constexpr int kSmallestExponent = -60;
constexpr int kColumnPadding = 64;
constexpr uint32_t kKeptBits = ~((1U << (23 - kHopperMantissaBits)) - 1);  // of a float's 23

}  // namespace kv8::numerics
#endif

HWY_BEFORE_NAMESPACE();
namespace kv8::numerics {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// count is a multiple of 32.
void operand_exponents(const uint8_t* HWY_RESTRICT codes, size_t count, int8_t* HWY_RESTRICT out) {
  const hn::CappedTag<int8_t, 32> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto magnitude =
        hn::And(hn::LoadU(d, reinterpret_cast<const int8_t*>(codes) + i), hn::Set(d, 0x7F));
    const auto field = hn::And(
        hn::BitCast(d, hn::ShiftRight<3>(hn::BitCast(hn::RebindToUnsigned<decltype(d)>(), magnitude))),
        hn::Set(d, 0x0F));
    auto exponent = hn::Sub(hn::Max(field, hn::Set(d, 1)), hn::Set(d, 7));
    exponent = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(d)), hn::Set(d, kZeroExponent), exponent);
    exponent = hn::IfThenElse(hn::Eq(magnitude, hn::Set(d, 0x7F)), hn::Set(d, kNanExponent), exponent);
    hn::StoreU(exponent, d, out + i);
  }
}

// The largest exponent among the 32 products of each column.
HWY_INLINE void product_exponents(const int8_t* HWY_RESTRICT a, const int8_t* HWY_RESTRICT b, size_t columns,
                                  int8_t* HWY_RESTRICT out) {
  const hn::ScalableTag<int8_t> d;
  for (size_t j = 0; j < columns; j += hn::Lanes(d)) {
    auto even = hn::Set(d, -128);
    auto odd = even;
    for (size_t k = 0; k < kHopperStep; k += 2) {
      even = hn::Max(even, hn::SaturatedAdd(hn::Set(d, a[k]), hn::LoadU(d, b + k * columns + j)));
      odd = hn::Max(odd, hn::SaturatedAdd(hn::Set(d, a[k + 1]), hn::LoadU(d, b + (k + 1) * columns + j)));
    }
    hn::StoreU(hn::Max(even, odd), d, out + j);
  }
}

// One vector of columns: what is to be known before its products are added.
template <class DF, class DI>
struct Ticks {
  hn::Vec<DI> exponent;       // E
  hn::Vec<DI> product_shift;  // to add to a product's bits, so that its value counts ticks
  hn::Vec<DF> sum;            // in ticks; C to begin with
  hn::Mask<DI> is_nan;
};

template <class DF, class DI>
HWY_INLINE Ticks<DF, DI> begin_ticks(DF df, DI di, const int8_t* HWY_RESTRICT exponents,
                                     const float* HWY_RESTRICT c) {
  const hn::Rebind<int8_t, DI> d8;
  const auto products = hn::PromoteTo(di, hn::LoadU(d8, exponents));
  const auto addend = hn::LoadU(df, c);
  const auto field = hn::And(hn::ShiftRight<23>(hn::BitCast(di, addend)), hn::Set(di, 0xFF));
  const auto own = hn::Sub(field, hn::Set(di, 127));
  Ticks<DF, DI> ticks;
  ticks.is_nan = hn::Or(hn::Gt(products, hn::Set(di, kLargestExponent)), hn::Eq(field, hn::Set(di, 0xFF)));
  ticks.exponent = hn::Max(hn::Max(products, own), hn::Set(di, kSmallestExponent));
  const auto to_ticks = hn::Sub(hn::Set(di, kHopperMantissaBits), ticks.exponent);
  ticks.product_shift =
      hn::ShiftLeft<23>(hn::Max(hn::Add(to_ticks, hn::Set(di, kRowScaleExponent)), hn::Zero(di)));
  const auto scale = hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(to_ticks, hn::Set(di, 127))));
  ticks.sum = hn::Trunc(hn::Mul(addend, scale));
  return ticks;
}

template <class DF, class DI>
HWY_INLINE void end_ticks(DF df, DI di, const Ticks<DF, DI>& ticks, float* HWY_RESTRICT c) {
  const auto kept = hn::And(hn::BitCast(di, ticks.sum), hn::Set(di, static_cast<int32_t>(kKeptBits)));
  const auto field = hn::Add(ticks.exponent, hn::Set(di, 127 - kHopperMantissaBits));
  const auto result = hn::Mul(hn::BitCast(df, kept), hn::BitCast(df, hn::ShiftLeft<23>(field)));
  const auto nan = hn::BitCast(df, hn::Set(di, 0x7FC00000));
  hn::StoreU(hn::IfThenElse(hn::RebindMask(df, ticks.is_nan), nan, result), df, c);
}

// a * b in whole ticks.
template <class DF, class DI>
HWY_INLINE hn::Vec<DF> whole_ticks(DF df, DI di, hn::Vec<DF> a, hn::Vec<DF> b, hn::Vec<DI> shift) {
  return hn::Trunc(hn::BitCast(df, hn::Add(hn::BitCast(di, hn::Mul(a, b)), shift)));
}

void step_columns(const float* HWY_RESTRICT a, const int8_t* HWY_RESTRICT a_exponents,
                  const float* HWY_RESTRICT b, const int8_t* HWY_RESTRICT b_exponents, size_t columns,
                  float* HWY_RESTRICT c) {
  const hn::CappedTag<float, kColumnPadding / 4> df;
  const hn::RebindToSigned<decltype(df)> di;
  const size_t lanes = hn::Lanes(df);
  int8_t exponents[1024];
  KV8_CHECK(columns <= sizeof(exponents), "columns {}", columns);
  product_exponents(a_exponents, b_exponents, columns, exponents);
  // Four vectors at a time hide the latency of the adds.
  for (size_t j = 0; j < columns; j += 4 * lanes) {
    auto t0 = begin_ticks(df, di, exponents + j, c + j);
    auto t1 = begin_ticks(df, di, exponents + j + lanes, c + j + lanes);
    auto t2 = begin_ticks(df, di, exponents + j + 2 * lanes, c + j + 2 * lanes);
    auto t3 = begin_ticks(df, di, exponents + j + 3 * lanes, c + j + 3 * lanes);
    const float* row = b + j;
    for (size_t k = 0; k < kHopperStep; ++k, row += columns) {
      const auto factor = hn::Set(df, a[k]);
      t0.sum = hn::Add(t0.sum, whole_ticks(df, di, factor, hn::LoadU(df, row), t0.product_shift));
      t1.sum = hn::Add(t1.sum, whole_ticks(df, di, factor, hn::LoadU(df, row + lanes), t1.product_shift));
      t2.sum = hn::Add(t2.sum, whole_ticks(df, di, factor, hn::LoadU(df, row + 2 * lanes), t2.product_shift));
      t3.sum = hn::Add(t3.sum, whole_ticks(df, di, factor, hn::LoadU(df, row + 3 * lanes), t3.product_shift));
    }
    end_ticks(df, di, t0, c + j);
    end_ticks(df, di, t1, c + j + lanes);
    end_ticks(df, di, t2, c + j + 2 * lanes);
    end_ticks(df, di, t3, c + j + 3 * lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::numerics
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::numerics {

HWY_EXPORT(operand_exponents);
HWY_EXPORT(step_columns);

namespace {

struct Operand {
  int mantissa = 0;  // signed, in units of 2^(exponent - 3)
  int exponent = 0;  // subnormals count as -6
};

Operand decode(uint8_t code) {
  const int field = (code >> 3) & 0xF;
  const int magnitude = (code & 7) + (field > 0 ? 8 : 0);
  return {code >= 0x80 ? -magnitude : magnitude, std::max(field, 1) - 7};
}

}  // namespace

float hopper_step(const uint8_t* a, const uint8_t* b, float c) {
  int mantissas[kHopperStep];
  int exponents[kHopperStep];
  bool any = c != 0.0F;
  int largest = any ? std::ilogb(c) : std::numeric_limits<int>::min();
  for (int k = 0; k < kHopperStep; ++k) {
    if ((a[k] & 0x7F) == kE4m3NanMagnitude || (b[k] & 0x7F) == kE4m3NanMagnitude)
      return std::numeric_limits<float>::quiet_NaN();
    const Operand x = decode(a[k]);
    const Operand y = decode(b[k]);
    mantissas[k] = x.mantissa * y.mantissa;
    exponents[k] = x.exponent + y.exponent;
    if (mantissas[k] == 0) continue;
    any = true;
    largest = std::max(largest, exponents[k]);
  }
  if (!any) return 0.0F;
  const int tick = largest - kHopperMantissaBits;
  auto sum = static_cast<int64_t>(std::ldexp(static_cast<double>(c), -tick));
  for (int k = 0; k < kHopperStep; ++k)
    sum += static_cast<int64_t>(std::ldexp(static_cast<double>(mantissas[k]), exponents[k] - 6 - tick));
  uint64_t magnitude = static_cast<uint64_t>(std::abs(sum));
  const int excess = std::max(static_cast<int>(std::bit_width(magnitude)) - (kHopperMantissaBits + 1), 0);
  magnitude = (magnitude >> excess) << excess;
  const auto result = static_cast<float>(std::ldexp(static_cast<double>(magnitude), tick));
  return sum < 0 ? -result : result;
}

void HopperRow::assign(const uint8_t* codes, int count) {
  KV8_CHECK(count % kHopperStep == 0, "count {}", count);
  values_.resize(count);
  exponents_.resize(count);
  nonzero_.resize(count / kHopperStep);
  dequantize_e4m3(codes, count, std::ldexp(1.0F, -kRowScaleExponent), values_.data());
  HWY_DYNAMIC_DISPATCH(operand_exponents)(codes, count, exponents_.data());
  for (int step = 0; step < count / kHopperStep; ++step) {
    const uint8_t* group = codes + step * kHopperStep;
    nonzero_[step] =
        std::any_of(group, group + kHopperStep, [](uint8_t code) { return (code & 0x7F) != 0; }) ? 1 : 0;
  }
}

void HopperMatrix::resize(int rows, int columns) {
  KV8_CHECK(rows % kHopperStep == 0, "rows {}", rows);
  rows_ = rows;
  columns_ = columns;
  padded_columns_ = (columns + kColumnPadding - 1) / kColumnPadding * kColumnPadding;
  values_.assign(static_cast<size_t>(rows) * padded_columns_, 0.0F);
  exponents_.assign(static_cast<size_t>(rows) * padded_columns_, kZeroExponent);
  has_nan_ = false;
}

void HopperMatrix::assign(const uint8_t* codes, int rows, int columns, int64_t stride) {
  resize(rows, columns);
  std::vector<uint8_t> padded(padded_columns_, 0);
  for (int row = 0; row < rows; ++row) {
    std::copy_n(codes + row * stride, columns, padded.data());
    for (const uint8_t code : padded) has_nan_ |= (code & 0x7F) == kE4m3NanMagnitude;
    const size_t at = static_cast<size_t>(row) * padded_columns_;
    dequantize_e4m3(padded.data(), padded_columns_, 1.0F, values_.data() + at);
    HWY_DYNAMIC_DISPATCH(operand_exponents)(padded.data(), padded_columns_, exponents_.data() + at);
  }
}

void HopperMatrix::assign_transposed(const uint8_t* codes, int rows, int columns, int64_t stride) {
  std::vector<uint8_t> transposed(static_cast<size_t>(rows) * columns);
  for (int column = 0; column < columns; ++column) {
    for (int row = 0; row < rows; ++row)
      transposed[static_cast<size_t>(row) * columns + column] = codes[column * stride + row];
  }
  assign(transposed.data(), rows, columns, columns);
}

void HopperMatrix::step(const HopperRow& a, int k, float* c) const {
  if (a.nonzero_[k / kHopperStep] == 0 &&
      !has_nan_) {  // common where P has underflowed: D is C, cut to 13 bits
    for (int j = 0; j < padded_columns_; ++j)
      c[j] = std::bit_cast<float>(std::bit_cast<uint32_t>(c[j]) & kKeptBits);
    return;
  }
  const size_t at = static_cast<size_t>(k) * padded_columns_;
  HWY_DYNAMIC_DISPATCH(step_columns)
  (a.values_.data() + k, a.exponents_.data() + k, values_.data() + at, exponents_.data() + at,
   padded_columns_, c);
}

}  // namespace kv8::numerics
#endif  // HWY_ONCE
