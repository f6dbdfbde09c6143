// The end of a decode segment: the output of a whole one, and the merge of one that several CTAs share.
//
// Parts lie in the workspace. The CTA whose part arrives last merges; where there are many parts it does so
// within its group of parts, and the CTA that finishes the last group merges the groups. Parts are always
// taken in order, so that the result doesn't depend on who comes last.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/ptx/math.cuh"
#include "attention/cuda/sm90/decode_walk.cuh"

namespace kv8::attention::cuda::sm90 {

// Up to this many parts are merged at once; more go through groups of about the root of their number.
constexpr int kPartsAtOnce = 40;
constexpr int kPartLoads = 12;  // parts in flight for each thread

// Index of a row (token x head of the group) in q_scale; times head_dim, in q and out.
__device__ __forceinline__ int64_t query_index(const KernelParams& p, const Sequence& sequence, int head,
                                               int row) {
  return static_cast<int64_t>(sequence.row_begin + row / p.group) * p.q_heads + head * p.group +
         row % p.group;
}

// The dim that a row of the product stands for: V^T's rows are permuted in an FP8 page.
template <CacheFormat kFormat>
__device__ __forceinline__ int output_dim(int row) {
  return kFormat == CacheFormat::fp8 ? value_dim(row) : row;
}

// Writes rows of a segment; a column is a row of it.
template <int kHeadDim>
class OutputRow {
 public:
  __device__ OutputRow(const KernelParams& p, const Sequence& sequence, int head, int first_row)
      : p_(p), sequence_(sequence), head_(head), first_row_(first_row) {}

  // What the output must be multiplied by: 1 / the sum of the weights, the sink's too, and V's scale.
  __device__ float factor(int column, float maximum, float sum) const {
    if (p_.sinks != nullptr) {
      const float sink = p_.sinks[head_ * p_.group + (first_row_ + column) % p_.group] * kLog2e;
      sum += ptx::exp2_approx(sink - maximum + kProbabilityExponent);
    }
    return (p_.v_scale != nullptr ? p_.v_scale[head_] : 1.0F) / sum;
  }

  __device__ void store(int column, int dim, float2 pair) const {
    const int64_t at = query_index(p_, sequence_, head_, first_row_ + column) * kHeadDim + dim;
    if (p_.out_f32) {
      *reinterpret_cast<float2*>(static_cast<float*>(p_.out) + at) = pair;
    } else {
      *reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(p_.out) + at) =
          __floats2bfloat162_rn(pair.x, pair.y);
    }
  }

 private:
  const KernelParams& p_;
  const Sequence& sequence_;
  int head_;
  int first_row_;
};

// index: 0 the part at the begin of the CTA's share, 1 the one at its end, 2 and 3 groups of parts led by
// either.
template <int kHeadDim, int kColumns>
__device__ float* partial_slot(const KernelParams& p, int cta, int index) {
  constexpr int64_t kFloats = (partial_floats(kHeadDim, kColumns) + 63) / 64 * 64;
  return p.decode_partials + (static_cast<int64_t>(cta) * kPartialsPerCta + index) * kFloats;
}

// Says whether this CTA is the last of `count` to arrive; the counter is 0 again afterwards. All that the
// CTAs wrote before is then visible to the last one.
__device__ __forceinline__ bool last_to_arrive(uint32_t* counter, int count, int* flag, int consumer_barrier,
                                               int threads) {
  __threadfence();
  ptx::named_barrier(consumer_barrier, threads);
  if (threadIdx.x == 0)
    *flag = atomicInc(counter, static_cast<unsigned>(count - 1)) == static_cast<unsigned>(count - 1);
  ptx::named_barrier(consumer_barrier, threads);
  const bool last = *flag != 0;
  __threadfence();
  return last;
}

// Merges `count` parts (slot(i) finds them) and hands each quad of rows on: use(column, row, maximum,
// sum, quad).
template <int kHeadDim, int kColumns, class Slot, class Use>
__device__ __forceinline__ void merge_parts(int count, int rows, Slot slot, Use use) {
  constexpr int kQuads = kHeadDim / 4;
  for (int i = threadIdx.x; i < rows * kQuads; i += 128) {
    const int column = i / kQuads;
    const int quad = i % kQuads;
    float maximum = kNothing;
    float sum = 0.0F;
    float4 output = {0.0F, 0.0F, 0.0F, 0.0F};
    for (int first = 0; first < count; first += kPartLoads) {
      float2 weights[kPartLoads];
      float4 outputs[kPartLoads];
#pragma unroll
      for (int k = 0; k < kPartLoads; ++k) {
        const float* part = slot(min(first + k, count - 1));
        weights[k] = __ldcg(reinterpret_cast<const float2*>(part) + column);
        outputs[k] = __ldcg(reinterpret_cast<const float4*>(part + 2 * kColumns + column * kHeadDim) + quad);
      }
#pragma unroll
      for (int k = 0; k < kPartLoads; ++k) {
        const float other = first + k < count ? weights[k].x : kNothing;
        const float next = fmaxf(maximum, other);
        const float a = ptx::exp2_approx(maximum - next);
        const float b = first + k < count ? ptx::exp2_approx(other - next) : 0.0F;
        maximum = next;
        sum = fmaf(weights[k].y, b, sum * a);
        output.x = fmaf(outputs[k].x, b, output.x * a);
        output.y = fmaf(outputs[k].y, b, output.y * a);
        output.z = fmaf(outputs[k].z, b, output.z * a);
        output.w = fmaf(outputs[k].w, b, output.w * a);
      }
    }
    use(column, quad * 4, maximum, sum, output);
  }
}

// Called by all consumers of a CTA once its part of the segment is in its slot.
template <CacheFormat kFormat, int kHeadDim, int kColumns>
__device__ __forceinline__ void merge_segment(const KernelParams& p, const DecodeWalk& walk,
                                              const DecodeSegment& segment, const Sequence& sequence,
                                              int rows, int* flag) {
  constexpr int kBarrier = 1;
  constexpr int kThreads = 128;
  const int first_cta = walk.owner(segment.begin);
  const int parts = walk.owner(segment.begin + segment.tiles - 1) - first_cta + 1;
  const bool leads_share = walk.share_begin(first_cta) == segment.begin;
  // The first part may lie at the end of its CTA's share, all others lie at the begin.
  auto tail = [&](int part) { return part == 0 && !leads_share ? 1 : 0; };
  auto part_slot = [&](int part) {
    return partial_slot<kHeadDim, kColumns>(p, first_cta + part, tail(part));
  };
  auto group_slot = [&](int part) {
    return partial_slot<kHeadDim, kColumns>(p, first_cta + part, 2 + tail(part));
  };
  auto counter = [&](int part, int which) { return p.decode_arrivals + (first_cta + part) * 3 + which; };

  const OutputRow<kHeadDim> writer(p, sequence, segment.head, segment.row_block * kColumns);
  auto write = [&](int column, int row, float maximum, float sum, float4 quad) {
    const float factor = writer.factor(column, maximum, sum);
    writer.store(column, output_dim<kFormat>(row), {quad.x * factor, quad.y * factor});
    writer.store(column, output_dim<kFormat>(row + 2), {quad.z * factor, quad.w * factor});
  };

  if (parts <= kPartsAtOnce) {
    if (last_to_arrive(counter(0, 2), parts, flag, kBarrier, kThreads)) {
      merge_parts<kHeadDim, kColumns>(parts, rows, part_slot, write);
    }
    return;
  }
  const int group_size = static_cast<int>(ceilf(sqrtf(static_cast<float>(parts))));
  const int groups = (parts + group_size - 1) / group_size;
  const int leader = (static_cast<int>(blockIdx.x) - first_cta) / group_size * group_size;
  const int members = min(group_size, parts - leader);
  if (!last_to_arrive(counter(leader, tail(leader)), members, flag, kBarrier, kThreads)) return;
  float* merged = group_slot(leader);
  merge_parts<kHeadDim, kColumns>(
      members, rows, [&](int i) { return part_slot(leader + i); },
      [&](int column, int row, float maximum, float sum, float4 quad) {
        if (row == 0) reinterpret_cast<float2*>(merged)[column] = {maximum, sum};
        *reinterpret_cast<float4*>(merged + 2 * kColumns + column * kHeadDim + row) = quad;
      });
  if (!last_to_arrive(counter(0, 2), groups, flag, kBarrier, kThreads)) return;
  merge_parts<kHeadDim, kColumns>(
      groups, rows, [&](int i) { return group_slot(i * group_size); }, write);
}

}  // namespace kv8::attention::cuda::sm90
