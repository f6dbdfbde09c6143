#include "ops/cpu/linear_float.h"

#include <algorithm>
#include <cmath>

#include "core/tensor.h"
#include "numerics/dequantize.h"
#include "numerics/e4m3.h"
#include "ops/cpu/unroll.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear_float.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/lane_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A panel's vectors of rows: their sums are chains of additions, and this many chains keep the multipliers
// busy. Of several tokens only kSharedVectors are summed up at a time: with kTokens, 12 sums, which fill
// AVX2's 16 registers with their operands.
constexpr int kVectors = 4;
constexpr int kSharedVectors = 2;
constexpr int kTokens = 6;
// Columns of a panel: with few tokens it stays in the first-level cache until it is used, with many in the
// second. Multiples of all blocks.
constexpr int64_t kFewColumns = 128;
constexpr int64_t kColumns = 512;
constexpr int64_t kTransposed = 4;  // rows and columns that are transposed together

// Columns [first, first + count) of row r, widened and scaled. first is a multiple of kColumns.
void widen_columns(const WeightPart& part, int64_t r, int64_t first, int64_t count, float* out) {
  const std::byte* from = part.row(r) + row_bytes(part.dtype, first);
  if (part.dtype == DType::f8_e4m3) {
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

// sums[t][0..kCount vectors) += panel^T x_t, column by column; width: of a row of the panel and of the sums.
template <int T, int kCount>
HWY_INLINE void multiply(const float* HWY_RESTRICT panel, int64_t width, int64_t columns,
                         const float* HWY_RESTRICT x, int64_t x_stride, float* HWY_RESTRICT sums) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[T][kCount];
  KV8_UNROLL
  for (int t = 0; t < T; ++t) {
    KV8_UNROLL
    for (int v = 0; v < kCount; ++v) sum[t][v] = hn::LoadU(d, sums + t * width + v * lanes);
  }
  for (int64_t c = 0; c < columns; ++c) {
    V weights[kCount];
    KV8_UNROLL
    for (int v = 0; v < kCount; ++v) weights[v] = hn::LoadU(d, panel + c * width + v * lanes);
    KV8_UNROLL
    for (int t = 0; t < T; ++t) {
      const V token = hn::Set(d, x[t * x_stride + c]);
      KV8_UNROLL
      for (int v = 0; v < kCount; ++v) sum[t][v] = hn::MulAdd(weights[v], token, sum[t][v]);
    }
  }
  KV8_UNROLL
  for (int t = 0; t < T; ++t) {
    KV8_UNROLL
    for (int v = 0; v < kCount; ++v) hn::StoreU(sum[t][v], d, sums + t * width + v * lanes);
  }
}

// Columns [first, first + columns) of the rows r + i, done <= i < width, as a panel [columns][width]; rows
// from i = rows on are zero. Any format, through memory. done: a multiple of kTransposed; widened:
// [kTransposed][kColumns] of scratch.
void fill_panel(const WeightPart& part, int64_t r, int64_t done, int64_t rows, int64_t first, int64_t columns,
                int64_t width, float* widened, float* panel) {
  for (int64_t i = done; i < width; i += kTransposed) {
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
}

#if HWY_TARGET != HWY_SCALAR

// The same in registers, for the first `vectors` whole vectors of rows. Returns how many it did: all, unless
// something is among them, a number or a scale, that only widen_columns() can widen.
template <class W>
int64_t fill_panel_directly(const WeightPart& part, int64_t r, int64_t vectors, int64_t first,
                            int64_t columns, float* panel) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVectors * lanes;
  const int64_t whole = columns / kStep<W> * kStep<W>;
  const int64_t run = part.scale_cols > 1 ? kScaleBlock : kColumns;  // columns that share their scales
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t row = r + v * lanes;
    for (int64_t c = 0; c < whole; c += run) {
      V multipliers = hn::Set(d, W::kMultiplier);
      if (!part.scales.empty()) {
        HWY_ALIGN float scales[hn::MaxLanes(F32())];
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const float* row_scales = part.row_scales(row + lane);
          scales[lane] = row_scales[part.scale_cols > 1 ? (first + c) / kScaleBlock : 0] * W::kMultiplier;
          if (!std::isfinite(scales[lane])) return v;
        }
        multipliers = hn::Load(d, scales);
      }
      if (!store_columns<W>(part.row(row) + row_bytes(part.dtype, first + c), part.row_bytes,
                            std::min(run, whole - c), multipliers, width, panel + c * width + v * lanes))
        return v;
    }
    for (int64_t lane = 0; lane < (whole < columns ? lanes : 0); ++lane) {
      float rest[kStep<W>];
      widen_columns(part, row + lane, first + whole, columns - whole, rest);
      for (int64_t c = whole; c < columns; ++c) panel[c * width + v * lanes + lane] = rest[c - whole];
    }
  }
  return vectors;
}

#endif  // HWY_TARGET != HWY_SCALAR

using FillPanel = int64_t (*)(const WeightPart&, int64_t r, int64_t vectors, int64_t first, int64_t columns,
                              float* panel);

// Null: this format goes through memory.
FillPanel direct_fill(DType dtype) {
#if HWY_TARGET != HWY_SCALAR
  switch (dtype) {
    case DType::f32:
      return fill_panel_directly<LaneF32>;
    case DType::bf16:
      return fill_panel_directly<LaneBf16>;
    case DType::f16:
      return fill_panel_directly<LaneF16>;
    case DType::f8_e4m3:
      return fill_panel_directly<LaneE4m3>;
    default:
      break;
  }
#endif
  (void)dtype;
  return nullptr;
}

// Scratch: a panel [kColumns][width], four widened rows [4][kColumns], the sums [tokens][width].
void linear_rows(const WeightPart& part, int64_t begin, int64_t end, TokenRange tokens,
                 const LinearProblem& p, std::vector<float>& scratch) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t width = kVectors * lanes;
  const int64_t count = tokens.end - tokens.begin;
  const int64_t needed = kColumns * width + kTransposed * kColumns + count * width;
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(needed)));
  float* panel = scratch.data();
  float* widened = panel + kColumns * width;
  float* sums = widened + kTransposed * kColumns;
  const FillPanel fill = direct_fill(part.dtype);
  // GGUF's blocks are up to 256 columns wide.
  const int64_t panel_columns = count < kTokens && fill != nullptr ? kFewColumns : kColumns;
  for (int64_t r = begin; r < end; r += width) {
    const int64_t rows = std::min(width, end - r);
    std::fill(sums, sums + count * width, 0.0F);
    for (int64_t first = 0; first < part.cols; first += panel_columns) {
      const int64_t columns = std::min(panel_columns, part.cols - first);
      const int64_t done = fill == nullptr ? 0 : fill(part, r, rows / lanes, first, columns, panel) * lanes;
      if (done < width) fill_panel(part, r, done, rows, first, columns, width, widened, panel);
      const float* x = p.x + tokens.begin * part.cols + first;
      int64_t t = 0;
      for (; t + kTokens <= count; t += kTokens) {
        for (int64_t v = 0; v < kVectors; v += kSharedVectors)
          multiply<kTokens, kSharedVectors>(panel + v * lanes, width, columns, x + t * part.cols, part.cols,
                                            sums + t * width + v * lanes);
      }
      for (; t < count; ++t)
        multiply<1, kVectors>(panel, width, columns, x + t * part.cols, part.cols, sums + t * width);
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
