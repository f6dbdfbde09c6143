#include "numerics/e4m3.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/e4m3.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numerics/e4m3-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::numerics {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

int64_t quantize_span(const float* HWY_RESTRICT x, size_t count, float inverse_scale,
                      uint8_t* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const size_t lanes = hn::Lanes(df);
  const auto scale = hn::Set(df, inverse_scale);
  const auto largest = hn::Set(di, 0x43E00000);  // 448
  const auto infinity = hn::Set(di, 0x7F800000);
  size_t saturated = 0;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto bits = hn::BitCast(di, hn::Mul(hn::LoadU(df, x + i), scale));
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
    const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0x1p14F));
    const auto subnormal = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x46800000));
    const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(di, 1));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, 0x7FFFF - (120 << 23))), odd);
    auto code =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x3C800000)), subnormal, hn::ShiftRight<20>(rounded));
    code = hn::IfThenElse(hn::Lt(magnitude, largest), code, hn::Set(di, 0x7E));
    const auto is_nan = hn::Gt(magnitude, infinity);
    code = hn::IfThenElse(is_nan, hn::Set(di, kE4m3NanMagnitude), code);
    hn::StoreU(hn::DemoteTo(d8, hn::Or(code, sign)), d8, out + i);
    saturated += hn::CountTrue(di, hn::AndNot(is_nan, hn::Gt(magnitude, largest)));
  }
  for (; i < count; ++i) {
    const float scaled = x[i] * inverse_scale;
    out[i] = float_to_e4m3(scaled);
    saturated += (scaled > kE4m3Max || scaled < -kE4m3Max) ? 1 : 0;
  }
  return static_cast<int64_t>(saturated);
}

void dequantize_span(const uint8_t* HWY_RESTRICT codes, size_t count, float scale, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto unit = hn::Set(df, static_cast<float>(1 << kWidenedExponent));
  const auto factor = hn::Set(df, scale);
  const auto nan_code = hn::Set(df, 480.0F);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = hn::Mul(widen_e4m3(df, codes + i), unit);
    const auto nan = hn::CopySign(hn::NaN(df), value);
    const auto checked = hn::IfThenElse(hn::Eq(hn::Abs(value), nan_code), nan, value);
    hn::StoreU(hn::Mul(checked, factor), df, out + i);
  }
  for (; i < count; ++i) out[i] = e4m3_to_float(codes[i]) * scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::numerics
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::numerics {

HWY_EXPORT(quantize_span);
HWY_EXPORT(dequantize_span);

int64_t quantize_e4m3(const float* x, size_t count, float inverse_scale, uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(quantize_span)(x, count, inverse_scale, out);
}

void dequantize_e4m3(const uint8_t* codes, size_t count, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(dequantize_span)(codes, count, scale, out);
}

}  // namespace kv8::numerics
#endif  // HWY_ONCE
