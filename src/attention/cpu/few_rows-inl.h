// float32 attention of up to four rows: SIMD lanes along head_dim, the cache widened in registers. Compiled
// once per target.
//
// Numbers are worked on in the order in which W::load_pair() yields them: Q is put into it once, and the
// result back out of it. Scores and weights lie row by row, so that softmax runs at full width.
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

// Registers: with 32 of them twice the accumulators fit.
constexpr bool kManyRegisters = HWY_MAX_BYTES == 64 || HWY_ARCH_ARM;

// What the rows of a block share while its tiles pass by.
struct FewRowsState {
  float* q = nullptr;       // [rows, head_dim] in working order, all scales applied
  float* acc = nullptr;     // [rows, head_dim] in working order
  float* scores = nullptr;  // [rows, kPageTokens]; weights later
  size_t head_dim = 0;
  float cap = 0.0F;  // of scores; 0: none
  float max[kFewRows] = {kNoKey, kNoKey, kNoKey, kNoKey};
  float sum[kFewRows] = {};
  float rescale[kFewRows] = {};  // what the latest tile does to acc
};

template <class W>
constexpr size_t kLine = 64 / sizeof(typename W::Stored);  // numbers of a cache line

// Numbers that load_pair() reads. head_dim is a multiple.
template <class D>
HWY_INLINE size_t pair_size(D d) {
  return 2 * hn::Lanes(d);
}

// The dim that stands at `at` in working order.
template <class W, class D>
HWY_INLINE size_t dim_at(D d, size_t at) {
  const size_t within = at % pair_size(d);
  return at - within + W::source(hn::Lanes(d), within / hn::Lanes(d), within % hn::Lanes(d));
}

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

// The sums of the lanes of a0 to a3: a transposition of each 4 x 4 block that adds on its way.
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> four_sums(D d, hn::Vec<D> a0, hn::Vec<D> a1, hn::Vec<D> a2,
                                                      hn::Vec<D> a3) {
  const auto even = hn::Add(hn::InterleaveLower(d, a0, a2), hn::InterleaveUpper(d, a0, a2));
  const auto odd = hn::Add(hn::InterleaveLower(d, a1, a3), hn::InterleaveUpper(d, a1, a3));
  return fold_blocks(d, hn::Add(hn::InterleaveLower(d, even, odd), hn::InterleaveUpper(d, even, odd)));
}

// Scores of kKeys keys. The accumulators of all (key, row) pairs live in registers; each vector of keys is
// widened once for all rows.
template <class W, class D, int kRows, int kKeys>
HWY_INLINE void score_keys(D d, const typename W::Stored* HWY_RESTRICT k, const FewRowsState& state,
                           float* HWY_RESTRICT scores) {
  using V = hn::Vec<D>;
  const size_t head_dim = state.head_dim;
  V acc[kRows][kKeys];
  for (int row = 0; row < kRows; ++row) {
    for (int key = 0; key < kKeys; ++key) acc[row][key] = hn::Zero(d);
  }
  for (size_t at = 0; at < head_dim; at += pair_size(d)) {
    for (int key = 0; key < kKeys; ++key) {
      V first;
      V second;
      W::load_pair(d, k + key * head_dim + at, first, second);
      for (int row = 0; row < kRows; ++row) {
        const float* HWY_RESTRICT q = state.q + row * head_dim + at;
        acc[row][key] = hn::MulAdd(first, hn::LoadU(d, q), acc[row][key]);
        acc[row][key] = hn::MulAdd(second, hn::LoadU(d, q + hn::Lanes(d)), acc[row][key]);
      }
    }
  }
  const hn::CappedTag<float, 4> d4;
  if constexpr (kKeys >= 4) {
    for (int row = 0; row < kRows; ++row) {
      for (int key = 0; key < kKeys; key += 4) {
        const V* a = &acc[row][key];
        hn::StoreU(four_sums(d, a[0], a[1], a[2], a[3]), d4, scores + row * kPageTokens + key);
      }
    }
  } else if constexpr (kKeys == 2 && kRows % 2 == 0) {
    const hn::Half<hn::CappedTag<float, 4>> d2;
    for (int row = 0; row < kRows; row += 2) {
      const auto sums = four_sums(d, acc[row][0], acc[row][1], acc[row + 1][0], acc[row + 1][1]);
      hn::StoreU(hn::LowerHalf(d2, sums), d2, scores + row * kPageTokens);
      hn::StoreU(hn::UpperHalf(d2, sums), d2, scores + (row + 1) * kPageTokens);
    }
  } else {
    static_assert(kKeys == 1);
    for (int row = 0; row < kRows; ++row)
      scores[row * kPageTokens] = hn::GetLane(hn::SumOfLanes(d, acc[row][0]));
  }
}

template <class W, class D, int kRows>
HWY_INLINE void score_tile(D d, const typename W::Stored* HWY_RESTRICT k, size_t keys,
                           const typename W::Stored* HWY_RESTRICT next_k, const FewRowsState& state) {
  // Enough accumulators to hide the latency of multiply-adds, and no more than there are registers.
  constexpr int kKeys = kRows == 1 ? 8 : kRows == 4 && !kManyRegisters ? 2 : 4;
  const size_t head_dim = state.head_dim;
  size_t key = 0;
  for (; key + kKeys <= keys; key += kKeys) {
    for (size_t i = 0; i < kKeys * head_dim; i += kLine<W>) hwy::Prefetch(next_k + key * head_dim + i);
    score_keys<W, D, kRows, kKeys>(d, k + key * head_dim, state, state.scores + key);
  }
  for (; key < keys; ++key) score_keys<W, D, kRows, 1>(d, k + key * head_dim, state, state.scores + key);
}

// Scores to weights, and max, sum and rescale brought up to date.
template <class D, int kRows>
HWY_INLINE void weigh_tile(D d, size_t keys, FewRowsState& state) {
  const size_t padded = (keys + hn::Lanes(d) - 1) / hn::Lanes(d) * hn::Lanes(d);
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int row = 0; row < kRows; ++row) {
    float* HWY_RESTRICT scores = state.scores + row * kPageTokens;
    std::fill(scores + keys, scores + padded, hn::GetLane(nothing));
    auto largest = hn::Set(d, state.max[row]);
    for (size_t i = 0; i < padded; i += hn::Lanes(d)) {
      auto score = hn::LoadU(d, scores + i);
      if (state.cap != 0.0F) {
        score = hn::IfThenElse(hn::Eq(score, nothing), score, soft_cap(d, score, state.cap));
        hn::StoreU(score, d, scores + i);
      }
      largest = hn::Max(largest, score);
    }
    const auto max = hn::MaxOfLanes(d, largest);
    const auto rescale = numerics::HWY_NAMESPACE::exp(d, hn::Sub(hn::Set(d, state.max[row]), max));
    auto sum = hn::Zero(d);
    for (size_t i = 0; i < padded; i += hn::Lanes(d)) {
      const auto weight = numerics::HWY_NAMESPACE::exp(d, hn::Sub(hn::LoadU(d, scores + i), max));
      hn::StoreU(weight, d, scores + i);
      sum = hn::Add(sum, weight);
    }
    state.max[row] = hn::GetLane(max);
    state.rescale[row] = hn::GetLane(rescale);
    state.sum[row] = state.sum[row] * state.rescale[row] + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// acc = acc * rescale + weights * V for kPairs pairs of vectors from dim `at` on. The tile is summed by
// itself first: small weights are not added one by one to a sum that is large already, and a million of them
// keep their mass.
template <class W, class D, int kRows, int kPairs>
HWY_INLINE void add_values(D d, const typename W::Stored* HWY_RESTRICT v, size_t keys,
                           const typename W::Stored* HWY_RESTRICT next_v, size_t at,
                           const FewRowsState& state) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const size_t head_dim = state.head_dim;
  V acc[kRows][2 * kPairs];
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < 2 * kPairs; ++i) acc[row][i] = hn::Zero(d);
  }
  const float* HWY_RESTRICT weights = state.scores;
  const bool fetches = at == 0;  // the first block of dims does it for all
  v += at;
  for (size_t key = 0; key < keys; ++key, v += head_dim) {
    if (fetches) {
      for (size_t i = 0; i < head_dim; i += kLine<W>) hwy::Prefetch(next_v + key * head_dim + i);
    }
    V weight[kRows];
    for (int row = 0; row < kRows; ++row) weight[row] = hn::Set(d, weights[row * kPageTokens + key]);
    for (int i = 0; i < kPairs; ++i) {
      V first;
      V second;
      W::load_pair(d, v + i * pair_size(d), first, second);
      for (int row = 0; row < kRows; ++row) {
        acc[row][2 * i] = hn::MulAdd(first, weight[row], acc[row][2 * i]);
        acc[row][2 * i + 1] = hn::MulAdd(second, weight[row], acc[row][2 * i + 1]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    const V rescale = hn::Set(d, state.rescale[row]);
    for (int i = 0; i < 2 * kPairs; ++i) {
      float* total = state.acc + row * head_dim + at + i * lanes;
      hn::StoreU(hn::MulAdd(hn::LoadU(d, total), rescale, acc[row][i]), d, total);
    }
  }
}

template <class W, class D, int kRows>
HWY_INLINE void add_tile(D d, const typename W::Stored* HWY_RESTRICT v, size_t keys,
                         const typename W::Stored* HWY_RESTRICT next_v, const FewRowsState& state) {
  constexpr int kPairs = kRows == 1 ? 4 : kRows == 4 && !kManyRegisters ? 1 : 2;
  size_t at = 0;
  for (; at + kPairs * pair_size(d) <= state.head_dim; at += kPairs * pair_size(d))
    add_values<W, D, kRows, kPairs>(d, v, keys, next_v, at, state);
  for (; at < state.head_dim; at += pair_size(d)) add_values<W, D, kRows, 1>(d, v, keys, next_v, at, state);
}

// False if a key or value that some row sees is NaN in FP8: then nothing is written, and the other kernel,
// which widens NaN as NaN, has to do it.
template <class W, class D, int kRows>
bool attend_few(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                const PartialRows& out) {
  const D d;
  const AttentionProblem& problem = *block.problem;
  const LayerCacheView& cache = problem.cache;
  const size_t head_dim = cache.head_dim;
  FewRowsState state;
  state.q = scratch.reserve(kRows * (2 * head_dim + kPageTokens));
  state.acc = state.q + kRows * head_dim;
  state.scores = state.acc + kRows * head_dim;
  state.head_dim = head_dim;
  state.cap = problem.logit_soft_cap;
  std::fill_n(state.acc, kRows * head_dim, 0.0F);
  const float q_scale = problem.softmax_scale * cache.k_scale[block.kv_head] * widened_unit<W>();
  for (int row = 0; row < kRows; ++row) {
    const float* from = block.q(row);
    for (size_t i = 0; i < head_dim; ++i) state.q[row * head_dim + i] = from[dim_at<W>(d, i)] * q_scale;
  }
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t tile_key = tile * kPageTokens;
    const int first = static_cast<int>(std::max<int64_t>(block.first_key - tile_key, 0));
    const int end = static_cast<int>(std::min<int64_t>(block.end_key - tile_key, kPageTokens));
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
    score_tile<W, D, kRows>(d, k, keys, next_k, state);
    for (int row = 0; row < kRows; ++row) {  // rows of other queries may see less than the block does
      float* scores = state.scores + row * kPageTokens;
      const auto from = std::clamp<int64_t>(block.visible_from(row) - tile_key, first, end) - first;
      const auto to = std::clamp<int64_t>(block.position(row) + 1 - tile_key, first, end) - first;
      std::fill(scores, scores + from, -std::numeric_limits<float>::infinity());
      std::fill(scores + to, scores + keys, -std::numeric_limits<float>::infinity());
    }
    weigh_tile<D, kRows>(d, keys, state);
    add_tile<W, D, kRows>(d, v, keys, next_v, state);
  }
  for (int row = 0; row < kRows; ++row) {
    out.max[row] = state.max[row];
    out.sum[row] = state.sum[row];
    for (size_t i = 0; i < head_dim; ++i)
      out.acc[row * head_dim + dim_at<W>(d, i)] = state.acc[row * head_dim + i] * widened_unit<W>();
  }
  return true;
}

template <class W, class D>
bool attend_few_rows(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                     const PartialRows& out) {
  switch (block.rows) {
    case 1:
      return attend_few<W, D, 1>(block, first_tile, end_tile, scratch, out);
    case 2:
      return attend_few<W, D, 2>(block, first_tile, end_tile, scratch, out);
    case 3:
      return attend_few<W, D, 3>(block, first_tile, end_tile, scratch, out);
    default:
      return attend_few<W, D, 4>(block, first_tile, end_tile, scratch, out);
  }
}

// With the widest vectors of which pairs make up head_dim. False if there are none, too.
template <class W>
bool attend_few_rows(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                     const PartialRows& out) {
  const auto fits = [&](auto d) { return block.problem->cache.head_dim % pair_size(d) == 0; };
  using Widest = hn::CappedTag<float, 16>;
  using Middle = hn::CappedTag<float, 8>;
  using Narrow = hn::CappedTag<float, 4>;
  if (fits(Widest())) return attend_few_rows<W, Widest>(block, first_tile, end_tile, scratch, out);
  if (fits(Middle())) return attend_few_rows<W, Middle>(block, first_tile, end_tile, scratch, out);
  if (fits(Narrow())) return attend_few_rows<W, Narrow>(block, first_tile, end_tile, scratch, out);
  return false;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
