#include "ops/cpu/linear_float.h"

#include <algorithm>

#include "numerics/dequantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Loaders: one vector of weights from column k of a row.
struct LoadF32 {
  static constexpr DType kType = DType::f32;
  static HWY_INLINE V load(F32 d, const std::byte* row, int64_t k) {
    return hn::LoadU(d, reinterpret_cast<const float*>(row) + k);
  }
};
struct LoadBf16 {
  static constexpr DType kType = DType::bf16;
  static HWY_INLINE V load(F32 d, const std::byte* row, int64_t k) {
    const hn::Rebind<uint16_t, F32> d16;
    const hn::RebindToUnsigned<F32> d32;
    const auto codes = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(row) + k);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, codes)));
  }
};
struct LoadF16 {
  static constexpr DType kType = DType::f16;
  static HWY_INLINE V load(F32 d, const std::byte* row, int64_t k) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(row) + k));
  }
};

constexpr int kWeightRows =
    4;  // with kTokens: 12 sums, which fill the 16 registers of AVX2 with their operands
constexpr int kTokens = 3;

// out[t * out_stride + r] = bias[r] + row r . token t, for R rows and T tokens.
template <class Load, int R, int T>
HWY_INLINE void dot_tile(const std::byte* rows, size_t row_bytes, int64_t cols, const float* x,
                         const float* bias, float* out, int64_t out_stride) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[R][T];
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) sums[r][t] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + lanes <= cols; k += lanes) {
    V tokens[T];
    for (int t = 0; t < T; ++t) tokens[t] = hn::LoadU(d, x + t * cols + k);
    for (int r = 0; r < R; ++r) {
      const V weights = Load::load(d, rows + static_cast<size_t>(r) * row_bytes, k);
      for (int t = 0; t < T; ++t) sums[r][t] = hn::MulAdd(weights, tokens[t], sums[r][t]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float tail[HWY_MAX_BYTES / sizeof(float)];
    const int64_t rest = cols - k;
    if (rest > 0) {
      const size_t offset = row_bytes / static_cast<size_t>(cols) * static_cast<size_t>(k);
      numerics::dequantize_row(Load::kType, rows + static_cast<size_t>(r) * row_bytes + offset, rest, tail);
    }
    for (int t = 0; t < T; ++t) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[r][t]));
      for (int64_t i = 0; i < rest; ++i) sum += tail[i] * x[t * cols + k + i];
      out[t * out_stride + r] = sum + (bias == nullptr ? 0.0F : bias[r]);
    }
  }
}

template <class Load, int R>
void dot_tokens(const std::byte* rows, size_t row_bytes, int64_t cols, const LinearProblem& p,
                int64_t row_index, TokenRange tokens) {
  const float* bias = p.bias == nullptr ? nullptr : p.bias + row_index;
  float* out = p.out + row_index;
  int64_t t = tokens.begin;
  for (; t + kTokens <= tokens.end; t += kTokens) {
    dot_tile<Load, R, kTokens>(rows, row_bytes, cols, p.x + t * cols, bias, out + t * p.out_stride,
                               p.out_stride);
  }
  for (; t < tokens.end; ++t) {
    dot_tile<Load, R, 1>(rows, row_bytes, cols, p.x + t * cols, bias, out + t * p.out_stride, p.out_stride);
  }
}

// count rows that lie one after the other, in the loader's format.
template <class Load>
void dot_rows(const std::byte* rows, size_t row_bytes, int64_t count, int64_t cols, const LinearProblem& p,
              int64_t row_index, TokenRange tokens) {
  int64_t r = 0;
  for (; r + kWeightRows <= count; r += kWeightRows) {
    dot_tokens<Load, kWeightRows>(rows + static_cast<size_t>(r) * row_bytes, row_bytes, cols, p,
                                  row_index + r, tokens);
  }
  for (; r < count; ++r) {
    dot_tokens<Load, 1>(rows + static_cast<size_t>(r) * row_bytes, row_bytes, cols, p, row_index + r, tokens);
  }
}

void linear_rows(const WeightPart& part, int64_t begin, int64_t end, TokenRange tokens,
                 const LinearProblem& p, std::vector<float>& scratch) {
  const int64_t row_index = part.row_begin + begin;
  if (part.dtype == DType::f32 || (tokens.end - tokens.begin <= kTokens && part.scales.empty())) {
    switch (part.dtype) {
      case DType::f32:
        return dot_rows<LoadF32>(part.row(begin), part.row_bytes, end - begin, part.cols, p, row_index,
                                 tokens);
      case DType::bf16:
        return dot_rows<LoadBf16>(part.row(begin), part.row_bytes, end - begin, part.cols, p, row_index,
                                  tokens);
      case DType::f16:
        return dot_rows<LoadF16>(part.row(begin), part.row_bytes, end - begin, part.cols, p, row_index,
                                 tokens);
      default:
        break;
    }
  }
  // Widened once for all tokens; 16 rows stay in the second-level cache.
  constexpr int64_t kRows = 16;
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(kRows * part.cols)));
  for (int64_t r = begin; r < end; r += kRows) {
    const int64_t count = std::min(kRows, end - r);
    for (int64_t i = 0; i < count; ++i) widen_row(part, r + i, scratch.data() + i * part.cols);
    dot_rows<LoadF32>(reinterpret_cast<const std::byte*>(scratch.data()),
                      static_cast<size_t>(part.cols) * sizeof(float), count, part.cols, p, part.row_begin + r,
                      tokens);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::ops::cpu {

HWY_EXPORT(linear_rows);

void linear_float(const WeightPart& part, int64_t begin, int64_t end, TokenRange tokens,
                  const LinearProblem& problem, std::vector<float>& scratch) {
  HWY_DYNAMIC_DISPATCH(linear_rows)(part, begin, end, tokens, problem, scratch);
}

}  // namespace kv8::ops::cpu
#endif  // HWY_ONCE
