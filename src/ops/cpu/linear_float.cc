#include "ops/cpu/linear_float.h"

#include <algorithm>

#include "core/tensor.h"
#include "numerics/dequantize.h"
#include "numerics/e4m3.h"
#include "ops/cpu/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Wider vectors than eight lanes would only make the panels, and so the remainders, larger.
using F32 = hn::CappedTag<float, 8>;
using V = hn::Vec<F32>;

// Vectors of weight rows; with kTokens: 12 sums, which fill AVX2's 16 registers with their operands. Their
// lanes together are a multiple of kTransposed on every target.
constexpr int kVectors = HWY_TARGET == HWY_SCALAR ? 4 : 2;
constexpr int kTokens = 6;
constexpr int64_t kColumns =
    512;  // of a panel at a time: it stays in the second-level cache; whole GGUF blocks
constexpr int64_t kTransposed = 4;  // rows and columns that are transposed together

// One vector of 16-bit codes, widened.
struct WidenBf16 {
  static constexpr DType kType = DType::bf16;
  static HWY_INLINE V load(F32 d, const std::byte* codes) {
    const hn::Rebind<uint16_t, F32> d16;
    const hn::RebindToUnsigned<F32> d32;
    const auto wide = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(codes)));
    return hn::BitCast(d, hn::ShiftLeft<16>(wide));
  }
};
struct WidenF16 {
  static constexpr DType kType = DType::f16;
  static HWY_INLINE V load(F32 d, const std::byte* codes) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(codes)));
  }
};

template <class Widen>
void widen_16_bits(const std::byte* row, int64_t count, float* out) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) hn::StoreU(Widen::load(d, row + 2 * k), d, out + k);
  numerics::dequantize_row(Widen::kType, row + 2 * k, count - k, out + k);
}

// Columns [first, first + count) of row r, widened and scaled. first is a multiple of kColumns.
void widen_columns(const WeightPart& part, int64_t r, int64_t first, int64_t count, float* out) {
  const std::byte* from = part.row(r) + row_bytes(part.dtype, first);
  if (part.dtype == DType::bf16) {
    widen_16_bits<WidenBf16>(from, count, out);
  } else if (part.dtype == DType::f16) {
    widen_16_bits<WidenF16>(from, count, out);
  } else if (part.dtype == DType::f8_e4m3) {
    numerics::dequantize_e4m3(reinterpret_cast<const uint8_t*>(from), static_cast<size_t>(count), 1.0F, out);
  } else {
    numerics::dequantize_row(part.dtype, from, count, out);
  }
  const float* scales = part.row_scales(r);
  if (scales == nullptr) return;
  if (part.scale_cols == 1) {
    for (int64_t c = 0; c < count; ++c) out[c] *= scales[0];
    return;
  }
  for (int64_t c = 0; c < count; ++c) out[c] *= scales[(first + c) / kScaleBlock];
}

// from [4][kColumns] to panel[c * width + 0..3]: blocks of 4 x 4 through 128-bit vectors, which every target
// has.
void transpose_rows(const float* from, int64_t columns, int64_t width, float* panel) {
  int64_t c = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, kTransposed> d;
  for (; c + kTransposed <= columns; c += kTransposed) {
    const auto row0 = hn::LoadU(d, from + c);
    const auto row1 = hn::LoadU(d, from + kColumns + c);
    const auto row2 = hn::LoadU(d, from + 2 * kColumns + c);
    const auto row3 = hn::LoadU(d, from + 3 * kColumns + c);
    const auto low02 = hn::InterleaveLower(d, row0, row2);  // 0a 2a 0b 2b
    const auto low13 = hn::InterleaveLower(d, row1, row3);
    const auto high02 = hn::InterleaveUpper(d, row0, row2);
    const auto high13 = hn::InterleaveUpper(d, row1, row3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, panel + c * width);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, panel + (c + 1) * width);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, panel + (c + 2) * width);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, panel + (c + 3) * width);
  }
#endif
  for (; c < columns; ++c) {
    for (int64_t r = 0; r < kTransposed; ++r) panel[c * width + r] = from[r * kColumns + c];
  }
}

// sums[t][0..width) += panel^T x_t, column by column.
template <int T>
HWY_INLINE void multiply(const float* panel, int64_t columns, const float* x, int64_t x_stride, float* sums) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVectors * lanes;
  V sum[T][kVectors];
  KV8_UNROLL
  for (int t = 0; t < T; ++t) {
    KV8_UNROLL
    for (int v = 0; v < kVectors; ++v) sum[t][v] = hn::LoadU(d, sums + t * width + v * lanes);
  }
  for (int64_t c = 0; c < columns; ++c) {
    V weights[kVectors];
    KV8_UNROLL
    for (int v = 0; v < kVectors; ++v) weights[v] = hn::LoadU(d, panel + c * width + v * lanes);
    KV8_UNROLL
    for (int t = 0; t < T; ++t) {
      const V token = hn::Set(d, x[t * x_stride + c]);
      KV8_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[t][v] = hn::MulAdd(weights[v], token, sum[t][v]);
    }
  }
  KV8_UNROLL
  for (int t = 0; t < T; ++t) {
    KV8_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[t][v], d, sums + t * width + v * lanes);
  }
}

// Scratch: a panel [kColumns][width], four widened rows [4][kColumns], the sums [tokens][width].
void linear_rows(const WeightPart& part, int64_t begin, int64_t end, TokenRange tokens,
                 const LinearProblem& p, std::vector<float>& scratch) {
  const F32 d;
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(d));
  const int64_t count = tokens.end - tokens.begin;
  const int64_t needed = kColumns * width + kTransposed * kColumns + count * width;
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(needed)));
  float* panel = scratch.data();
  float* widened = panel + kColumns * width;
  float* sums = widened + kTransposed * kColumns;
  for (int64_t r = begin; r < end; r += width) {
    const int64_t rows = std::min(width, end - r);
    std::fill(sums, sums + count * width, 0.0F);
    for (int64_t first = 0; first < part.cols; first += kColumns) {
      const int64_t columns = std::min(kColumns, part.cols - first);
      for (int64_t i = 0; i < width; i += kTransposed) {
        for (int64_t j = i; j < i + kTransposed; ++j) {
          float* row = widened + (j - i) * kColumns;
          if (j < rows) {
            widen_columns(part, r + j, first, columns, row);
          } else {
            std::fill(row, row + columns, 0.0F);
          }
        }
        transpose_rows(widened, columns, width, panel + i);
      }
      const float* x = p.x + tokens.begin * part.cols + first;
      int64_t t = 0;
      for (; t + kTokens <= count; t += kTokens)
        multiply<kTokens>(panel, columns, x + t * part.cols, part.cols, sums + t * width);
      for (; t < count; ++t) multiply<1>(panel, columns, x + t * part.cols, part.cols, sums + t * width);
    }
    const int64_t row_index = part.row_begin + r;
    for (int64_t t = 0; t < count; ++t) {
      float* out = p.out + (tokens.begin + t) * p.out_stride + row_index;
      for (int64_t i = 0; i < rows; ++i)
        out[i] = sums[t * width + i] + (p.bias == nullptr ? 0.0F : p.bias[row_index + i]);
    }
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
