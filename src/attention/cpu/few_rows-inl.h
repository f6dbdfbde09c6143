// float32 attention of up to four rows: SIMD lanes along head_dim, the cache widened in registers. Compiled
// once per target.
//
// Scores lie key-major, four to a key whatever the number of rows, so that two keys fill a vector of eight
// lanes and softmax runs at full width. kPeriod is that pair of keys.
#if defined(KV8_ATTENTION_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_ATTENTION_FEW_ROWS_INL_H_
#undef KV8_ATTENTION_FEW_ROWS_INL_H_
#else
#define KV8_ATTENTION_FEW_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "attention/cpu/f32_kernels.h"
#include "attention/cpu/softmax-inl.h"
#include "attention/cpu/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::attention::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kPeriod = 2 * kFewRows;
using FewRowsTag = hn::CappedTag<float, kPeriod>;

// What the rows of a block share while its tiles pass by. Stored FP8 numbers arrive 2^-120 times too small. Q
// and the weights carry 2^100 of that, so that every product and sum is a normal float; the last 2^20 are
// applied to scores and outputs.
struct FewRowsState {
  const float* q = nullptr;  // [rows, head_dim], all scales applied
  float* acc = nullptr;      // [rows, head_dim]
  float* scores = nullptr;   // [kPageTokens, kFewRows]
  size_t head_dim = 0;
  float cap = 0.0F;    // of scores; 0: none
  float max[kPeriod];  // both halves alike between tiles
  float sum[kPeriod];
  float rescale[kPeriod];  // what the latest tile does to acc
};

template <class W>
constexpr size_t kLine = 64 / sizeof(typename W::Stored);  // numbers of a cache line

template <class W>
constexpr float carried_scale() {
  return W::kExponent == 0 ? 1.0F : 0x1p100F;
}
template <class W>
constexpr float remaining_scale() {
  return W::kExponent == 0 ? 1.0F : 0x1p20F;
}

#if HWY_TARGET != HWY_SCALAR
// Adds the 4-lane blocks of v.
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> fold_blocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// out[r] = sum of the lanes of a_r.
template <class D>
HWY_INLINE void store_four_sums(D d, hn::Vec<D> a0, hn::Vec<D> a1, hn::Vec<D> a2, hn::Vec<D> a3,
                                float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  hn::StoreU(a0, d, out);
  hn::StoreU(a1, d, out + 1);
  hn::StoreU(a2, d, out + 2);
  hn::StoreU(a3, d, out + 3);
#else
  // A transposition of each 4 x 4 block that adds on its way.
  const auto even = hn::Add(hn::InterleaveLower(d, a0, a2), hn::InterleaveUpper(d, a0, a2));
  const auto odd = hn::Add(hn::InterleaveLower(d, a1, a3), hn::InterleaveUpper(d, a1, a3));
  const auto sums = hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd));
  hn::StoreU(fold_blocks(d, sums), hn::CappedTag<float, 4>(), out);
#endif
}

// Scores of kKeys keys. The accumulators of all (key, row) pairs live in registers; each vector of keys is
// widened once for all rows.
template <class W, int kRows, int kKeys>
HWY_INLINE void score_keys(const typename W::Stored* HWY_RESTRICT k, const FewRowsState& state,
                           float* HWY_RESTRICT scores) {
  const FewRowsTag d;
  using V = hn::Vec<FewRowsTag>;
  const size_t head_dim = state.head_dim;
  V acc[kKeys][kRows];
  for (int key = 0; key < kKeys; ++key) {
    for (int row = 0; row < kRows; ++row) acc[key][row] = hn::Zero(d);
  }
  for (size_t i = 0; i < head_dim; i += hn::Lanes(d)) {
    V q[kRows];
    for (int row = 0; row < kRows; ++row) q[row] = hn::LoadU(d, state.q + row * head_dim + i);
    for (int key = 0; key < kKeys; ++key) {
      const V wide = W::load(d, k + key * head_dim + i);
      for (int row = 0; row < kRows; ++row) acc[key][row] = hn::MulAdd(wide, q[row], acc[key][row]);
    }
  }
  const V zero = hn::Zero(d);
  for (int key = 0; key < kKeys; ++key) {
    store_four_sums(d, acc[key][0], kRows > 1 ? acc[key][kRows > 1 ? 1 : 0] : zero,
                    kRows > 2 ? acc[key][kRows > 2 ? 2 : 0] : zero,
                    kRows > 3 ? acc[key][kRows > 3 ? 3 : 0] : zero, scores + key * kFewRows);
  }
}

template <class W, int kRows>
HWY_INLINE void score_tile(const typename W::Stored* HWY_RESTRICT k, size_t keys,
                           const typename W::Stored* HWY_RESTRICT next_k, const FewRowsState& state) {
  constexpr int kKeys = kRows == 1 ? 8 : kRows == 2 ? 4 : kRows == 3 ? 3 : 2;
  const size_t head_dim = state.head_dim;
  size_t key = 0;
  for (; key + kKeys <= keys; key += kKeys) {
    for (size_t i = 0; i < kKeys * head_dim; i += kLine<W>) hwy::Prefetch(next_k + key * head_dim + i);
    score_keys<W, kRows, kKeys>(k + key * head_dim, state, state.scores + key * kFewRows);
  }
  for (; key < keys; ++key) score_keys<W, kRows, 1>(k + key * head_dim, state, state.scores + key * kFewRows);
}

// Scores to weights, and max, sum and rescale brought up to date.
template <class W>
HWY_INLINE void weigh_tile(size_t keys, FewRowsState& state) {
  const FewRowsTag d;
  float* HWY_RESTRICT scores = state.scores;
  if (keys % 2 != 0) {  // a partner without weight
    std::fill_n(scores + keys * kFewRows, kFewRows, -std::numeric_limits<float>::infinity());
    ++keys;
  }
  const size_t numbers = keys * kFewRows;
  const auto scale = hn::Set(d, remaining_scale<W>());
  for (size_t lane = 0; lane < kPeriod; lane += hn::Lanes(d)) {
    auto max = hn::LoadU(d, state.max + lane);
    for (size_t i = lane; i < numbers; i += kPeriod) {
      auto score = hn::LoadU(d, scores + i);
      if (W::kExponent != 0) score = hn::Mul(score, scale);
      if (state.cap != 0.0F) {
        const auto masked = hn::Eq(score, hn::Set(d, -std::numeric_limits<float>::infinity()));
        score = hn::IfThenElse(masked, score, soft_cap(d, score, state.cap));
      }
      if (W::kExponent != 0 || state.cap != 0.0F) hn::StoreU(score, d, scores + i);
      max = hn::Max(max, score);
    }
    hn::StoreU(max, d, state.rescale + lane);  // the new maxima, for a moment
  }
  for (size_t row = 0; row < kFewRows; ++row) {
    const float max = std::max(state.rescale[row], state.rescale[row + kFewRows]);
    const float old = state.max[row];
    state.rescale[row] = state.rescale[row + kFewRows] = old - max;
    state.max[row] = state.max[row + kFewRows] = max;
  }
  const auto carried = hn::Set(d, carried_scale<W>());
  for (size_t lane = 0; lane < kPeriod; lane += hn::Lanes(d)) {
    const auto rescale = numerics::HWY_NAMESPACE::exp(d, hn::LoadU(d, state.rescale + lane));
    hn::StoreU(rescale, d, state.rescale + lane);
    const auto max = hn::LoadU(d, state.max + lane);
    auto sum = hn::Zero(d);
    for (size_t i = lane; i < numbers; i += kPeriod) {
      auto weight = numerics::HWY_NAMESPACE::exp(d, hn::Sub(hn::LoadU(d, scores + i), max));
      if (W::kExponent != 0) weight = hn::Mul(weight, carried);
      hn::StoreU(weight, d, scores + i);
      sum = hn::Add(sum, weight);
    }
    hn::StoreU(hn::MulAdd(hn::LoadU(d, state.sum + lane), rescale, sum), d, state.sum + lane);
  }
}

// acc = acc * rescale + weights * V for kVectors vectors of dims. The tile is summed by itself first: small
// weights are not added one by one to a sum that is large already, and a million of them keep their mass.
template <class W, int kRows, int kVectors>
HWY_INLINE void add_values(const typename W::Stored* HWY_RESTRICT v, size_t keys,
                           const typename W::Stored* HWY_RESTRICT next_v, size_t at,
                           const FewRowsState& state) {
  const FewRowsTag d;
  using V = hn::Vec<FewRowsTag>;
  const size_t lanes = hn::Lanes(d);
  const size_t head_dim = state.head_dim;
  V acc[kRows][kVectors];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < kVectors; ++i) acc[row][i] = hn::Zero(d);
  }
  const float* HWY_RESTRICT weights = state.scores;
  v += at;
  next_v += at;
  for (size_t key = 0; key < keys; ++key, v += head_dim, next_v += head_dim, weights += kFewRows) {
    if (at == 0) {  // the first block of dims fetches for all
      for (size_t i = 0; i < head_dim; i += kLine<W>) hwy::Prefetch(next_v + i);
    }
    V weight[kRows];
    for (int row = 0; row < kRows; ++row) weight[row] = hn::Set(d, weights[row]);
    for (int i = 0; i < kVectors; ++i) {
      const V wide = W::load(d, v + i * lanes);
      for (int row = 0; row < kRows; ++row) acc[row][i] = hn::MulAdd(wide, weight[row], acc[row][i]);
    }
  }
  for (int row = 0; row < kRows; ++row) {
    const V rescale = hn::Set(d, state.rescale[row]);
    for (int i = 0; i < kVectors; ++i) {
      float* total = state.acc + row * head_dim + at + i * lanes;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, total), rescale, acc[row][i]), d, total);
    }
  }
}

template <class W, int kRows>
HWY_INLINE void add_tile(const typename W::Stored* HWY_RESTRICT v, size_t keys,
                         const typename W::Stored* HWY_RESTRICT next_v, const FewRowsState& state) {
  // As many accumulators as hide the latency of multiply-adds (8) and leave registers for weights and a mask.
  constexpr int kVectors = kRows == 1 ? 8 : kRows == 2 ? 4 : kRows == 3 ? 3 : 2;
  const size_t lanes = hn::Lanes(FewRowsTag());
  size_t at = 0;
  for (; at + kVectors * lanes <= state.head_dim; at += kVectors * lanes)
    add_values<W, kRows, kVectors>(v, keys, next_v, at, state);
  for (; at + 2 * lanes <= state.head_dim; at += 2 * lanes)
    add_values<W, kRows, 2>(v, keys, next_v, at, state);
  for (; at < state.head_dim; at += lanes) add_values<W, kRows, 1>(v, keys, next_v, at, state);
}

// False if a key or value that some row sees is NaN in FP8: then nothing is written, and the other kernel,
// which widens NaN as NaN, has to do it.
template <class W, int kRows>
bool attend_few(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                const PartialRows& out) {
  const AttentionProblem& problem = *block.problem;
  const kv_cache::LayerCacheView& cache = problem.cache;
  const size_t head_dim = cache.head_dim;
  FewRowsState state;
  float* q = scratch.reserve(2 * kRows * head_dim + kv_cache::kPageTokens * kFewRows);
  state.q = q;
  state.acc = q + kRows * head_dim;
  state.scores = state.acc + kRows * head_dim;
  state.head_dim = head_dim;
  state.cap = problem.logit_soft_cap;
  std::fill_n(state.max, kPeriod, kNoKey);
  std::fill_n(state.sum, kPeriod, 0.0F);
  std::fill_n(state.acc, kRows * head_dim, 0.0F);
  const float q_scale = problem.softmax_scale * cache.k_scale[block.kv_head];
  for (int row = 0; row < kRows; ++row) {
    const float* from = block.q(row);
    for (size_t i = 0; i < head_dim; ++i) q[row * head_dim + i] = from[i] * q_scale * carried_scale<W>();
  }
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t tile_key = tile * kv_cache::kPageTokens;
    const int first = static_cast<int>(std::max<int64_t>(block.first_key - tile_key, 0));
    const int end = static_cast<int>(std::min<int64_t>(block.end_key - tile_key, kv_cache::kPageTokens));
    const size_t keys = end - first;
    const auto* k =
        reinterpret_cast<const typename W::Stored*>(cache.key(block.page(tile), block.kv_head, first));
    const auto* v =
        reinterpret_cast<const typename W::Stored*>(cache.value(block.page(tile), block.kv_head, first));
    const int32_t next_page = block.page(tile + 1 < end_tile ? tile + 1 : tile);
    const auto* next_k = reinterpret_cast<const typename W::Stored*>(cache.key(next_page, block.kv_head, 0));
    const auto* next_v =
        reinterpret_cast<const typename W::Stored*>(cache.value(next_page, block.kv_head, 0));
    if constexpr (W::kExponent != 0) {
      if (has_e4m3_nan(k, keys * head_dim) || has_e4m3_nan(v, keys * head_dim)) return false;
    }
    score_tile<W, kRows>(k, keys, next_k, state);
    for (int row = 0; row < kRows; ++row) {  // rows of other queries may see less than the block does
      const int64_t from = block.visible_from(row) - tile_key;
      const int64_t to = block.position(row) + 1 - tile_key;
      for (int64_t slot = first; slot < std::min<int64_t>(from, end); ++slot)
        state.scores[(slot - first) * kFewRows + row] = -std::numeric_limits<float>::infinity();
      for (int64_t slot = std::max<int64_t>(to, first); slot < end; ++slot)
        state.scores[(slot - first) * kFewRows + row] = -std::numeric_limits<float>::infinity();
    }
    weigh_tile<W>(keys, state);
    add_tile<W, kRows>(v, keys, next_v, state);
  }
  for (int row = 0; row < kRows; ++row) {
    out.max[row] = state.max[row];
    out.sum[row] = (state.sum[row] + state.sum[row + kFewRows]) / carried_scale<W>();
    for (size_t i = 0; i < head_dim; ++i)
      out.acc[row * head_dim + i] = state.acc[row * head_dim + i] * remaining_scale<W>();
  }
  return true;
}

template <class W>
bool attend_few_rows(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                     const PartialRows& out) {
  switch (block.rows) {
    case 1:
      return attend_few<W, 1>(block, first_tile, end_tile, scratch, out);
    case 2:
      return attend_few<W, 2>(block, first_tile, end_tile, scratch, out);
    case 3:
      return attend_few<W, 3>(block, first_tile, end_tile, scratch, out);
    default:
      return attend_few<W, 4>(block, first_tile, end_tile, scratch, out);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
