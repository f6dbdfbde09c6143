#include "ops/cpu/linear_packed.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "ops/cpu/unroll.h"

// The kernels use registers of 32 bytes at most, so that AVX-512 adds nothing to AVX2 but its 8-bit dot
// product, and SSSE3 has all they need of SSE4: fewer copies of ten types' kernels to compile.
#ifndef HWY_DISABLED_TARGETS  // sanitizer builds leave out more
#define HWY_DISABLED_TARGETS (HWY_SSE4 | HWY_AVX3)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/linear_packed.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After foreach_target.h: it is per target.
#include "ops/cpu/packed_loaders-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// What a kernel must know of a type once its codes are single bytes.
struct Shape {
  int subs;   // weight scales in a group of 32 columns: 1 or 2
  int depth;  // pair products that fit an int16 sum: quads added before widening
  bool is_signed;
  bool has_minimum;
};

template <DType kDType>
constexpr Shape shape_of() {
  constexpr PackedType kType = packed_type(kDType);
  constexpr int kSubs = kGroupCols / kType.sub_columns;
  constexpr int kLargest = (1 << kType.bits) - 1;
  constexpr int kDepth = kType.bits == 8 ? 1 : 32767 / (2 * kLargest * 127);
  // A power of two that divides the quads of a sub-block.
  constexpr int kQuads = 8 / kSubs;
  return {kSubs,
          kDepth >= kQuads ? kQuads
          : kDepth >= 4    ? 4
          : kDepth >= 2    ? 2
                           : 1,
          kType.bits == 8, kType.has_minima || kType.offset != 0};
}

HWY_INLINE I8V broadcast_quad(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return hn::BitCast(I8(), hn::Set(I32(), four));
}

// Adds one sub-block (of 8 / kShape.subs quads) of S strips times T tokens to sums. codes(s, q): the q-th
// quad of strip s; x: the tokens' codes of the sub-block.
template <const Shape& kShape, int S, int T, class Codes>
HWY_INLINE void dot_sub_block(const Codes& codes, const int8_t* const (&x)[T], int first_quad,
                              I32V (&dots)[S][T]) {
  constexpr int kQuads = 8 / kShape.subs;
  KV8_UNROLL
  for (int q = 0; q < kQuads; q += kShape.depth) {
    I16V pairs[S][T];
    KV8_UNROLL
    for (int i = 0; i < kShape.depth; ++i) {
      I8V tokens[T];
      KV8_UNROLL
      for (int t = 0; t < T; ++t) tokens[t] = broadcast_quad(x[t] + 4 * (first_quad + q + i));
      KV8_UNROLL
      for (int s = 0; s < S; ++s) {
        const U8V quad = codes(s, first_quad + q + i);
        KV8_UNROLL
        for (int t = 0; t < T; ++t) {
          const I16V products = pair_products<kShape.is_signed>(quad, tokens[t]);
          pairs[s][t] = i == 0 ? products : hn::Add(pairs[s][t], products);
        }
      }
    }
    KV8_UNROLL
    for (int s = 0; s < S; ++s) {
      KV8_UNROLL
      for (int t = 0; t < T; ++t) {
        const I32V sum = add_pairs(pairs[s][t]);
        dots[s][t] = q == 0 ? sum : hn::Add(dots[s][t], sum);
      }
    }
  }
}

// sum += scale * (x_scale * dot) + minimum * x_sum, in this order, everywhere.
template <bool kHasMinimum>
HWY_INLINE F32V add_sub_block(F32V sum, I32V dot, F32V scale, F32V minimum, float x_scale, float x_sum) {
  sum = hn::MulAdd(scale, hn::Mul(hn::ConvertTo(F32(), dot), hn::Set(F32(), x_scale)), sum);
  if constexpr (kHasMinimum) sum = hn::MulAdd(minimum, hn::Set(F32(), x_sum), sum);
  return sum;
}

// Stores `count` of a strip's sums, with their bias.
HWY_INLINE void store_strip(F32V sums, const float* bias, int64_t count, float* out) {
  if (count >= kStripRows) {
    if (bias != nullptr) sums = hn::Add(sums, hn::LoadU(F32(), bias));
    hn::StoreU(sums, F32(), out);
    return;
  }
  float values[kStripRows];
  hn::StoreU(sums, F32(), values);
  for (int64_t i = 0; i < count; ++i) out[i] = values[i] + (bias == nullptr ? 0.0F : bias[i]);
}

HWY_INLINE F32V load_strip(const float* from, int64_t count) {
  if (count >= kStripRows) return hn::LoadU(F32(), from);
  float values[kStripRows] = {};
  for (int64_t i = 0; i < count; ++i) values[i] = from[i];
  return hn::LoadU(F32(), values);
}

template <DType kDType>
inline constexpr Shape kShapeOf = shape_of<kDType>();

// One strip times one token, straight from the packed weights.
template <DType kDType>
HWY_INLINE F32V multiply_strip(const uint8_t* panel, int row, int64_t cols, const QuantizedRow& x) {
  using Load = Loader<kDType>;
  constexpr PackedType kType = Load::kType;
  constexpr int kSubs = Load::kSubs;
  Load load;
  F32V sum = hn::Zero(F32());
  int64_t group = 0;
  for (const int64_t groups = cols / kGroupCols; group < groups;) {
    load.header(panel, row);
    panel += kType.header_bytes();
    for (int g = 0; g < kType.groups_per_super; ++g, ++group) {
      F32V scale[kSubs];
      F32V minimum[kSubs];
      load.scales(panel, row, scale, minimum);
      U8V quads[8];
      Load::codes(panel + kType.group_scale_bytes, row, quads);
      panel += kType.group_scale_bytes + kType.group_code_bytes();
      const int8_t* const codes[1] = {x.codes + group * kGroupCols};
      KV8_UNROLL
      for (int s = 0; s < kSubs; ++s) {
        I32V dots[1][1];
        dot_sub_block<kShapeOf<kDType>, 1, 1>([&](int, int q) HWY_ATTR { return quads[q]; }, codes,
                                              s * (8 / kSubs), dots);
        const float x_sum = kSubs == 1 ? x.sums[group] : x.half_sums[2 * group + s];
        sum = add_sub_block<Load::kHasMinimum>(sum, dots[0][0], scale[s], minimum[s], x.scales[group], x_sum);
      }
    }
  }
  return sum;
}

template <DType kDType>
void multiply_one_token(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRow& x,
                        const float* bias, float* out) {
  for (int64_t r = begin; r < end; r += kPanelRows) {
    const uint8_t* panel = part.packed.panel(r / kPanelRows);
    for (int row = 0; row < kPanelRows; row += kStripRows) {
      const F32V sums = multiply_strip<kDType>(panel, row, part.cols, x);
      store_strip(sums, bias == nullptr ? nullptr : bias + r + row, end - r - row, out + r + row);
    }
  }
}

// Many tokens: the weights of kStrips strips are taken apart once, into a buffer that stays in the
// first-level cache, and multiplied with all tokens.
constexpr int kStrips = 2;
constexpr int kTokens = 3;
constexpr int64_t kChunkGroups = 32;  // 1024 columns: 16 KB of codes

struct Unpacked {
  U8V codes[kChunkGroups][kStrips][8];
  F32V scales[kChunkGroups * 2][kStrips];
  F32V minimums[kChunkGroups * 2][kStrips];
};

template <DType kDType>
void unpack_strip(const uint8_t* panel, int row, int64_t groups, int strip, Unpacked& to) {
  using Load = Loader<kDType>;
  constexpr PackedType kType = Load::kType;
  constexpr int kSubs = Load::kSubs;
  Load load;
  for (int64_t group = 0; group < groups;) {
    load.header(panel, row);
    panel += kType.header_bytes();
    for (int g = 0; g < kType.groups_per_super; ++g, ++group) {
      F32V scale[kSubs];
      F32V minimum[kSubs];
      load.scales(panel, row, scale, minimum);
      KV8_UNROLL
      for (int s = 0; s < kSubs; ++s) {
        to.scales[group * kSubs + s][strip] = scale[s];
        if constexpr (Load::kHasMinimum) to.minimums[group * kSubs + s][strip] = minimum[s];
      }
      U8V quads[8];
      Load::codes(panel + kType.group_scale_bytes, row, quads);
      KV8_UNROLL
      for (int q = 0; q < 8; ++q) to.codes[group][strip][q] = quads[q];
      panel += kType.group_scale_bytes + kType.group_code_bytes();
    }
  }
}

// Where a tile's sums come from and go to. offset: of a strip's first row in its token's row of `out`.
struct StripTarget {
  const float* bias;
  int64_t offset;
  int64_t count;
};

// T tokens times kStrips strips over one chunk of columns.
template <const Shape& kShape, int T>
HWY_INLINE void multiply_tile(const Unpacked& weights, int64_t first_group, int64_t groups,
                              const QuantizedRow (&x)[T], const StripTarget (&targets)[kStrips], float* out,
                              int64_t out_stride, bool is_first, bool is_last) {
  F32V sums[kStrips][T];
  KV8_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    KV8_UNROLL
    for (int t = 0; t < T; ++t) {
      sums[s][t] =
          is_first ? hn::Zero(F32()) : load_strip(out + t * out_stride + targets[s].offset, targets[s].count);
    }
  }
  for (int64_t g = 0; g < groups; ++g) {
    const int8_t* codes[T];
    KV8_UNROLL
    for (int t = 0; t < T; ++t) codes[t] = x[t].codes + (first_group + g) * kGroupCols;
    KV8_UNROLL
    for (int sub = 0; sub < kShape.subs; ++sub) {
      I32V dots[kStrips][T];
      const int8_t* const(&tokens)[T] = codes;
      dot_sub_block<kShape, kStrips, T>([&](int s, int q) HWY_ATTR { return weights.codes[g][s][q]; }, tokens,
                                        sub * (8 / kShape.subs), dots);
      const int64_t sub_block = g * kShape.subs + sub;
      KV8_UNROLL
      for (int t = 0; t < T; ++t) {
        const float x_scale = x[t].scales[first_group + g];
        const float x_sum =
            kShape.subs == 1 ? x[t].sums[first_group + g] : x[t].half_sums[first_group * 2 + sub_block];
        KV8_UNROLL
        for (int s = 0; s < kStrips; ++s) {
          sums[s][t] = add_sub_block<kShape.has_minimum>(sums[s][t], dots[s][t], weights.scales[sub_block][s],
                                                         weights.minimums[sub_block][s], x_scale, x_sum);
        }
      }
    }
  }
  KV8_UNROLL
  for (int s = 0; s < kStrips; ++s) {
    KV8_UNROLL
    for (int t = 0; t < T; ++t) {
      store_strip(sums[s][t], is_last ? targets[s].bias : nullptr, targets[s].count,
                  out + t * out_stride + targets[s].offset);
    }
  }
}

template <DType kDType>
void multiply_many_tokens(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRows& x,
                          TokenRange tokens, const LinearProblem& p, Unpacked& unpacked) {
  constexpr const Shape& kShape = kShapeOf<kDType>;
  constexpr PackedType kType = packed_type(kDType);
  const int64_t groups = part.cols / kGroupCols;
  // Chunks of equal size, in whole super-blocks.
  const int64_t supers = groups / kType.groups_per_super;
  const int64_t chunks = (groups + kChunkGroups - 1) / kChunkGroups;
  const int64_t chunk = (supers + chunks - 1) / chunks * kType.groups_per_super;
  constexpr int64_t kTileRows = kStrips * kStripRows;
  for (int64_t r = begin; r < end; r += kTileRows) {
    for (int64_t group = 0; group < groups; group += chunk) {
      const int64_t count = std::min(chunk, groups - group);
      StripTarget targets[kStrips];
      KV8_UNROLL
      for (int s = 0; s < kStrips; ++s) {
        const int64_t row = r + s * kStripRows;
        const int64_t panel = std::min(row / kPanelRows, part.packed.panels - 1);
        const uint8_t* at = part.packed.panel(panel) + group / kType.groups_per_super * kType.super_bytes();
        unpack_strip<kDType>(at, static_cast<int>(row % kPanelRows), count, s, unpacked);
        const int64_t index = part.row_begin + row;
        targets[s] = {p.bias == nullptr ? nullptr : p.bias + index, index, std::max<int64_t>(0, end - row)};
      }
      const bool is_first = group == 0;
      const bool is_last = group + count == groups;
      int64_t t = tokens.begin;
      for (; t + kTokens <= tokens.end; t += kTokens) {
        QuantizedRow rows[kTokens];
        KV8_UNROLL
        for (int i = 0; i < kTokens; ++i) rows[i] = x.row(t + i);
        multiply_tile<kShape, kTokens>(unpacked, group, count, rows, targets, p.out + t * p.out_stride,
                                       p.out_stride, is_first, is_last);
      }
      for (; t < tokens.end; ++t) {
        const QuantizedRow rows[1] = {x.row(t)};
        multiply_tile<kShape, 1>(unpacked, group, count, rows, targets, p.out + t * p.out_stride,
                                 p.out_stride, is_first, is_last);
      }
    }
  }
}

template <DType kDType>
void multiply(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRows& x, TokenRange tokens,
              const LinearProblem& p, std::vector<float>& scratch) {
  if (tokens.end - tokens.begin == 1) {
    const float* bias = p.bias == nullptr ? nullptr : p.bias + part.row_begin;
    return multiply_one_token<kDType>(part, begin, end, x.row(tokens.begin), bias,
                                      p.out + tokens.begin * p.out_stride + part.row_begin);
  }
  scratch.resize(std::max(scratch.size(), (sizeof(Unpacked) + 64) / sizeof(float)));
  auto* at = reinterpret_cast<std::byte*>(scratch.data());
  at += (64 - reinterpret_cast<uintptr_t>(at) % 64) % 64;
  multiply_many_tokens<kDType>(part, begin, end, x, tokens, p, *reinterpret_cast<Unpacked*>(at));
}

#else

// One number at a time, for machines without SIMD.
template <DType kDType>
void multiply(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRows& x, TokenRange tokens,
              const LinearProblem& p, std::vector<float>& scratch) {
  scratch.resize(std::max(scratch.size(), static_cast<size_t>(part.cols)));
  for (int64_t r = begin; r < end; ++r) {
    widen_row(part, r, scratch.data());
    const int64_t index = part.row_begin + r;
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const QuantizedRow row = x.row(t);
      float sum = 0.0F;
      for (int64_t block = 0; block < part.cols / kGroupCols; ++block) {
        float dot = 0.0F;
        for (int64_t c = block * kGroupCols; c < (block + 1) * kGroupCols; ++c) {
          dot += scratch[static_cast<size_t>(c)] * static_cast<float>(row.codes[c]);
        }
        sum += row.scales[block] * dot;
      }
      p.out[t * p.out_stride + index] = sum + (p.bias == nullptr ? 0.0F : p.bias[index]);
    }
  }
}

#endif

void multiply_any(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRows& x,
                  TokenRange tokens, const LinearProblem& p, std::vector<float>& scratch) {
  switch (part.dtype) {
    case DType::q4_0:
      return multiply<DType::q4_0>(part, begin, end, x, tokens, p, scratch);
    case DType::q4_1:
      return multiply<DType::q4_1>(part, begin, end, x, tokens, p, scratch);
    case DType::q5_0:
      return multiply<DType::q5_0>(part, begin, end, x, tokens, p, scratch);
    case DType::q5_1:
      return multiply<DType::q5_1>(part, begin, end, x, tokens, p, scratch);
    case DType::q8_0:
      return multiply<DType::q8_0>(part, begin, end, x, tokens, p, scratch);
    case DType::q2_k:
      return multiply<DType::q2_k>(part, begin, end, x, tokens, p, scratch);
    case DType::q3_k:
      return multiply<DType::q3_k>(part, begin, end, x, tokens, p, scratch);
    case DType::q4_k:
      return multiply<DType::q4_k>(part, begin, end, x, tokens, p, scratch);
    case DType::q5_k:
      return multiply<DType::q5_k>(part, begin, end, x, tokens, p, scratch);
    case DType::q6_k:
      return multiply<DType::q6_k>(part, begin, end, x, tokens, p, scratch);
    default:
      KV8_CHECK(false, "{} is not a block type", to_string(part.dtype));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv8::ops::cpu {

HWY_EXPORT(multiply_any);

void linear_packed(const WeightPart& part, int64_t begin, int64_t end, const QuantizedRows& x,
                   TokenRange tokens, const LinearProblem& problem, std::vector<float>& scratch) {
  HWY_DYNAMIC_DISPATCH(multiply_any)(part, begin, end, x, tokens, problem, scratch);
}

}  // namespace kv8::ops::cpu
#endif  // HWY_ONCE
