#include "numerics/exp2.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/exp2.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "numerics/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::numerics {
namespace HWY_NAMESPACE {

void exp2_vectors(const float* x, size_t count, float* out) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) hn::StoreU(exp2(d, hn::LoadU(d, x + i)), d, out + i);
  for (; i < count; ++i) hn::StoreU(exp2(d1, hn::LoadU(d1, x + i)), d1, out + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::numerics
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::numerics {

HWY_EXPORT(exp2_vectors);

void exp2_span(const float* x, size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(exp2_vectors)(x, count, out);
}

}  // namespace kv8::numerics
#endif  // HWY_ONCE
