#include "ops/cpu/quantized_rows.h"

#include <algorithm>

#include "core/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/quantized_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void quantize_row(const float* x, int64_t cols, int8_t* codes, float* scales, float* sums, float* half_sums) {
  const hn::CappedTag<float, 16> d;  // a half block at most
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t block = 0; block < cols / 32; ++block) {
    const float* from = x + block * 32;
    auto largest = hn::Zero(d);
    auto poison = hn::Zero(d);  // 0 * x: NaN if any x isn't finite
    for (int64_t i = 0; i < 32; i += lanes) {
      const auto v = hn::LoadU(d, from + i);
      largest = hn::Max(largest, hn::Abs(v));
      poison = hn::MulAdd(v, hn::Zero(d), poison);
    }
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, largest));
    const float scale = maximum * (1.0F / 127.0F) + hn::GetLane(hn::SumOfLanes(d, poison));
    const auto inverse = hn::Set(d, maximum > 0.0F ? 127.0F / maximum : 0.0F);
    scales[block] = scale;
    float block_sum = 0.0F;  // of two exact integers; a float, for codes of what isn't finite may be anything
    for (int half = 0; half < 2; ++half) {
      auto sum = hn::Zero(di);
      for (int64_t i = half * 16; i < half * 16 + 16; i += lanes) {
        const auto code = hn::NearestInt(hn::Mul(hn::LoadU(d, from + i), inverse));
        hn::StoreU(hn::DemoteTo(d8, code), d8, codes + block * 32 + i);
        sum = hn::Add(sum, code);
      }
      const auto half_sum = static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
      half_sums[block * 2 + half] = scale * half_sum;
      block_sum += half_sum;
    }
    sums[block] = scale * block_sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::ops::cpu {

HWY_EXPORT(quantize_row);

void QuantizedRows::fill(const float* x, int64_t rows, int64_t cols, ThreadPool& pool) {
  KV8_CHECK(cols % 32 == 0, "{} columns", cols);
  const int64_t blocks = cols / 32;
  cols_ = cols;
  row_bytes_ = static_cast<size_t>(cols) + static_cast<size_t>(4 * blocks) * sizeof(float);
  data_.resize(std::max(data_.size(), static_cast<size_t>(rows) * row_bytes_));
  const auto quantize = [&](int64_t r) {
    std::byte* at = data_.data() + static_cast<size_t>(r) * row_bytes_;
    auto* floats = reinterpret_cast<float*>(at + cols);
    HWY_DYNAMIC_DISPATCH(quantize_row)
    (x + r * cols, cols, reinterpret_cast<int8_t*>(at), floats, floats + blocks, floats + 2 * blocks);
  };
  constexpr int64_t kRowsPerTask = 8;
  pool.parallel_for((rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    for (int64_t r = task * kRowsPerTask; r < std::min(rows, (task + 1) * kRowsPerTask); ++r) quantize(r);
  });
}

}  // namespace kv8::ops::cpu
#endif  // HWY_ONCE
