#include "ops/cpu/rope.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/rope.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Pairs (i, i + pairs).
void rotate_halves(float* head, const float* cos, const float* sin, int64_t pairs) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto a = hn::LoadU(d, head + i);
    const auto b = hn::LoadU(d, head + pairs + i);
    const auto c = hn::LoadU(d, cos + i);
    const auto s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + pairs + i);
  }
  for (; i < pairs; ++i) {
    const float a = head[i];
    const float b = head[pairs + i];
    head[i] = a * cos[i] - b * sin[i];
    head[pairs + i] = b * cos[i] + a * sin[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::ops::cpu {

HWY_EXPORT(rotate_halves);

void RopeTable::fill(const Rope& rope, std::span<const int64_t> positions, ThreadPool& pool) {
  pairs = static_cast<int64_t>(rope.inverse_frequencies.size());
  const auto rows = static_cast<int64_t>(positions.size());
  cos.resize(static_cast<size_t>(rows * pairs));
  sin.resize(static_cast<size_t>(rows * pairs));
  constexpr int64_t kRowsPerTask = 32;
  pool.parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) {
      const auto position = static_cast<float>(positions[static_cast<size_t>(row)]);
      for (int64_t i = 0; i < pairs; ++i) {
        const float angle = position * rope.inverse_frequencies[static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(row * pairs + i);
        cos[at] = std::cos(angle) * rope.magnitude;
        sin[at] = std::sin(angle) * rope.magnitude;
      }
    }
  });
}

void rotate_head(float* head, const float* cos, const float* sin, int64_t pairs, bool interleaved) {
  if (!interleaved) return HWY_DYNAMIC_DISPATCH(rotate_halves)(head, cos, sin, pairs);
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = head[2 * i];
    const float b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

}  // namespace kv8::ops::cpu
#endif  // HWY_ONCE
