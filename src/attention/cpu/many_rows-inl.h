// float32 attention of many rows: SIMD lanes along the rows. Compiled once per target.
//
// Everything is transposed: Q^T [head_dim, rows], S^T [keys, rows], O^T [head_dim, rows]. A tile's keys and
// values are widened to scratch once; its numbers are then broadcast, one at a time, into multiply-adds with
// vectors of rows, a register block of keys (or dims) by vectors. Softmax runs down the columns.
#if defined(KV8_ATTENTION_MANY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_ATTENTION_MANY_ROWS_INL_H_
#undef KV8_ATTENTION_MANY_ROWS_INL_H_
#else
#define KV8_ATTENTION_MANY_ROWS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include <hwy/highway.h>

#include "attention/cpu/f32_kernels.h"
#include "attention/cpu/layer_cache.h"
#include "attention/cpu/softmax-inl.h"
#include "attention/cpu/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::attention::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using ManyRowsTag = hn::CappedTag<float, 16>;
constexpr size_t kBroadcasts = 4;  // keys or dims of a register block; widened tiles are padded to it

struct ManyRowsState {
  size_t rows = 0;  // a multiple of the lanes; rows beyond the block's are zero and see no key
  size_t head_dim = 0;
  size_t stride = 0;        // of a widened key or value: head_dim rounded up to kBroadcasts
  float cap = 0.0F;         // of scores; 0: none
  float* q = nullptr;       // [head_dim, rows], softmax scale applied
  float* scores = nullptr;  // [kPageTokens, rows]; weights later
  float* acc = nullptr;     // [stride, rows]
  float* tile = nullptr;    // [kPageTokens, stride]: keys, then values
  float* max = nullptr;     // [rows], and so on
  float* sum = nullptr;
  float* rescale = nullptr;
  float* from =
      nullptr;  // the first and last slot of the tile that a row sees, as floats (exact, and comparable
  float* to = nullptr;  // to a broadcast slot)
};

// result[b][rows] = (result * rescale +) sum over i < depth of broadcast[b * broadcast_stride + i *
// broadcast_step] * vectors[i][rows] for kCount broadcasts and kVectors vectors of rows.
template <int kCount, int kVectors>
HWY_INLINE void multiply_block(const float* HWY_RESTRICT broadcast, size_t broadcast_stride,
                               size_t broadcast_step, const float* HWY_RESTRICT vectors, size_t rows,
                               size_t depth, const float* HWY_RESTRICT rescale, float* HWY_RESTRICT result) {
  const ManyRowsTag d;
  using V = hn::Vec<ManyRowsTag>;
  const size_t lanes = hn::Lanes(d);
  V acc[kCount][kVectors];
  for (int b = 0; b < kCount; ++b) {
    for (int i = 0; i < kVectors; ++i) {
      acc[b][i] = hn::Zero(d);
    }
  }
  for (size_t step = 0; step < depth; ++step, broadcast += broadcast_step, vectors += rows) {
    V row_vectors[kVectors];
    for (int i = 0; i < kVectors; ++i) row_vectors[i] = hn::LoadU(d, vectors + i * lanes);
    for (int b = 0; b < kCount; ++b) {
      const V factor = hn::Set(d, broadcast[b * broadcast_stride]);
      for (int i = 0; i < kVectors; ++i) acc[b][i] = hn::MulAdd(factor, row_vectors[i], acc[b][i]);
    }
  }
  for (int b = 0; b < kCount; ++b) {
    for (int i = 0; i < kVectors; ++i) {
      float* to = result + b * rows + i * lanes;
      if (rescale != nullptr)  // what is there already, rescaled, and the tile's own sum
        acc[b][i] = hn::MulAdd(hn::LoadU(d, to), hn::LoadU(d, rescale + i * lanes), acc[b][i]);
      hn::StoreU(acc[b][i], d, to);
    }
  }
}

template <int kVectors>
HWY_INLINE void score_columns(const ManyRowsState& state, size_t keys, size_t row) {
  for (size_t key = 0; key < keys; key += kBroadcasts)
    multiply_block<kBroadcasts, kVectors>(state.tile + key * state.stride, state.stride, 1, state.q + row,
                                          state.rows, state.head_dim, nullptr,
                                          state.scores + key * state.rows + row);
}

template <int kVectors>
HWY_INLINE void add_columns(const ManyRowsState& state, size_t keys, size_t row) {
  for (size_t dim = 0; dim < state.head_dim; dim += kBroadcasts)
    multiply_block<kBroadcasts, kVectors>(state.tile + dim, 1, state.stride, state.scores + row, state.rows,
                                          keys, state.rescale + row, state.acc + dim * state.rows + row);
}

// Three vectors of rows by four broadcasts fill 12 of 16 registers.
HWY_INLINE void score_all(const ManyRowsState& state, size_t keys) {
  const size_t lanes = hn::Lanes(ManyRowsTag());
  size_t row = 0;
  for (; row + 3 * lanes <= state.rows; row += 3 * lanes) score_columns<3>(state, keys, row);
  for (; row + 2 * lanes <= state.rows; row += 2 * lanes) score_columns<2>(state, keys, row);
  for (; row < state.rows; row += lanes) score_columns<1>(state, keys, row);
}

HWY_INLINE void add_all(const ManyRowsState& state, size_t keys) {
  const size_t lanes = hn::Lanes(ManyRowsTag());
  size_t row = 0;
  for (; row + 3 * lanes <= state.rows; row += 3 * lanes) add_columns<3>(state, keys, row);
  for (; row + 2 * lanes <= state.rows; row += 2 * lanes) add_columns<2>(state, keys, row);
  for (; row < state.rows; row += lanes) add_columns<1>(state, keys, row);
}

// Masks, caps and exponentiates the tile's scores, and brings max, sum and rescale up to date.
HWY_INLINE void weigh_all(const ManyRowsState& state, size_t keys, bool masked) {
  const ManyRowsTag d;
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (size_t row = 0; row < state.rows; row += hn::Lanes(d)) {
    float* HWY_RESTRICT column = state.scores + row;
    const auto from = hn::LoadU(d, state.from + row);
    const auto to = hn::LoadU(d, state.to + row);
    const auto old_max = hn::LoadU(d, state.max + row);
    auto max = old_max;
    for (size_t key = 0; key < keys; ++key) {
      auto score = hn::LoadU(d, column + key * state.rows);
      if (state.cap != 0.0F) score = soft_cap(d, score, state.cap);
      if (masked) {
        const auto slot = hn::Set(d, static_cast<float>(key));
        score = hn::IfThenElse(hn::And(hn::Le(from, slot), hn::Le(slot, to)), score, nothing);
      }
      if (masked || state.cap != 0.0F) hn::StoreU(score, d, column + key * state.rows);
      max = hn::Max(max, score);
    }
    const auto rescale = numerics::HWY_NAMESPACE::exp(d, hn::Sub(old_max, max));
    auto sum = hn::Zero(d);
    for (size_t key = 0; key < keys; ++key) {
      const auto weight =
          numerics::HWY_NAMESPACE::exp(d, hn::Sub(hn::LoadU(d, column + key * state.rows), max));
      hn::StoreU(weight, d, column + key * state.rows);
      sum = hn::Add(sum, weight);
    }
    hn::StoreU(max, d, state.max + row);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, state.sum + row), rescale, sum), d, state.sum + row);
    hn::StoreU(rescale, d, state.rescale + row);
  }
}

// Numbers one by one: those beyond the last whole vector, and a tile with a NaN, which stays one.
template <class W>
void widen_one_by_one(const typename W::Stored* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) to[i] = W::widen(from[i]) / widened_unit<W>();
}

// Widens the tile's used keys or values, times 2^-kExponent, scales not applied, padded with zeros to
// kBroadcasts keys and dims.
template <class W>
void widen_tile(const std::byte* from, size_t keys, const ManyRowsState& state) {
  const ManyRowsTag d;
  const auto* stored = reinterpret_cast<const typename W::Stored*>(from);
  const size_t head_dim = state.head_dim;
  const size_t padded_keys = (keys + kBroadcasts - 1) / kBroadcasts * kBroadcasts;
  bool has_nan = false;
  if constexpr (W::kExponent != 0) has_nan = has_e4m3_nan(stored, keys * head_dim);
  for (size_t key = 0; key < padded_keys; ++key) {
    float* to = state.tile + key * state.stride;
    if (key >= keys) {
      std::fill_n(to, state.stride, 0.0F);
      continue;
    }
    const typename W::Stored* row = stored + key * head_dim;
    size_t i = 0;
    for (; !has_nan && i + hn::Lanes(d) <= head_dim; i += hn::Lanes(d))
      hn::StoreU(W::load(d, row + i), d, to + i);
    widen_one_by_one<W>(row + i, head_dim - i, to + i);
    std::fill(to + head_dim, to + state.stride, 0.0F);
  }
}

template <class W>
void attend_many_rows(const RowBlock& block, int64_t first_tile, int64_t end_tile, F32Scratch& scratch,
                      const PartialRows& out) {
  const AttentionProblem& problem = *block.problem;
  const LayerCacheView& cache = problem.cache;
  const ManyRowsTag d;
  ManyRowsState state;
  const size_t block_rows = block.rows;
  state.rows = (block_rows + hn::Lanes(d) - 1) / hn::Lanes(d) * hn::Lanes(d);
  state.head_dim = cache.head_dim;
  state.stride = (state.head_dim + kBroadcasts - 1) / kBroadcasts * kBroadcasts;
  state.cap = problem.logit_soft_cap;
  const size_t page = kPageTokens;
  float* at = scratch.reserve((state.stride * 2 + page + 5) * state.rows + page * state.stride);
  const auto take = [&at](size_t count) {
    float* taken = at;
    at += count;
    return taken;
  };
  state.q = take(state.stride * state.rows);
  state.acc = take(state.stride * state.rows);
  state.scores = take(page * state.rows);
  state.max = take(state.rows);
  state.sum = take(state.rows);
  state.rescale = take(state.rows);
  state.from = take(state.rows);
  state.to = take(state.rows);
  state.tile = take(page * state.stride);
  std::fill_n(state.q, state.stride * state.rows, 0.0F);
  std::fill_n(state.acc, state.stride * state.rows, 0.0F);
  std::fill_n(state.max, state.rows, kNoKey);
  std::fill_n(state.sum, state.rows, 0.0F);
  const float q_scale = problem.softmax_scale * cache.k_scale[block.kv_head] * widened_unit<W>();
  for (size_t row = 0; row < block_rows; ++row) {
    const float* from = block.q(static_cast<int>(row));
    for (size_t i = 0; i < state.head_dim; ++i) state.q[i * state.rows + row] = from[i] * q_scale;
  }
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t tile_key = tile * kPageTokens;
    const int first = static_cast<int>(std::max<int64_t>(block.first_key - tile_key, 0));
    const int end = static_cast<int>(std::min<int64_t>(block.end_key - tile_key, kPageTokens));
    const size_t keys = end - first;
    bool masked = block_rows != state.rows;
    for (size_t row = 0; row < state.rows; ++row) {
      const bool real = row < block_rows;
      const int64_t from =
          real ? std::max<int64_t>(block.visible_from(static_cast<int>(row)) - tile_key - first, 0) : 1;
      const int64_t to =
          real ? std::min<int64_t>(block.position(static_cast<int>(row)) - tile_key - first, keys - 1) : 0;
      masked |= from > 0 || to + 1 < static_cast<int64_t>(keys);
      state.from[row] = static_cast<float>(from);
      state.to[row] = static_cast<float>(to);
    }
    widen_tile<W>(cache.key(block.page(tile), block.kv_head, first), keys, state);
    score_all(state, keys);
    weigh_all(state, keys, masked);
    widen_tile<W>(cache.value(block.page(tile), block.kv_head, first), keys, state);
    add_all(state, keys);
  }
  for (size_t row = 0; row < block_rows; ++row) {
    out.max[row] = state.max[row];
    out.sum[row] = state.sum[row];
    for (size_t i = 0; i < state.head_dim; ++i)
      out.acc[row * state.head_dim + i] = state.acc[i * state.rows + row] * widened_unit<W>();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace kv8::attention::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
