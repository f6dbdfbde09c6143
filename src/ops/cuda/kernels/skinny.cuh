// One persistent block a multiprocessor, in such a size that the blocks of two kernels fit side by side:
// while one product ends, the next one's blocks already fill their rings with weights.
//
//   warp 4 (producer)   copies 16 rows x 1 KB of weights at a time into a ring in shared memory
//   warps 0..3          each multiply a quarter of the columns of a ring slot; x stays in registers
//   warps 5, 6          add the four warps' sums, and finish: bias, gate, residual
//
// The unit of work is 16 rows of W and a slice of k that is as long as the registers for x allow. Where there
// is more than one slice, the block that is last to finish a tile adds the slices in their order.
#pragma once

#include <algorithm>

#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/gate.cuh"
#include "ops/cuda/kernels/skinny.h"

namespace kv8::ops::cuda::skinny {

#ifndef KV8_SKINNY_RING
#define KV8_SKINNY_RING 6
#endif
#ifndef KV8_SKINNY_HINT
#define KV8_SKINNY_HINT 1
#endif
#ifndef KV8_SKINNY_TRIGGER
#define KV8_SKINNY_TRIGGER 0
#endif
#ifndef KV8_SKINNY_GROUPS
#define KV8_SKINNY_GROUPS 8
#endif

constexpr int kTile = 16;          // rows of W
constexpr int kChunkBytes = 1024;  // of a row, in a ring slot
constexpr int kPitch =
    kChunkBytes + 64;  // from row to row: neighbouring rows lie in the two halves of the banks
constexpr int kSlotBytes = kTile * kPitch;
constexpr int kSlots = KV8_SKINNY_RING;
constexpr int kMultipliers = 4;  // warps
constexpr int kFinishers = 2;
constexpr int kThreads = 256;  // one warp is idle: setmaxnreg works on groups of four
constexpr int kXRegisters = 16 * KV8_SKINNY_GROUPS;
constexpr int kFragmentBytes = 64;  // of a row, for one load by four lanes
constexpr int kFragments = kChunkBytes / kMultipliers / kFragmentBytes;  // a warp's, of a slot

struct Params {
  const uint8_t* weights;
  const float* scale;
  const __nv_bfloat16* x;
  const float* bias;
  void* y;
  float* partials;     // [tiles][slices][8 columns' groups][32 lanes][4]
  uint32_t* arrivals;  // [tiles], zero between launches
  int rows;
  int n;
  int k;
  int tiles;
  int chunks;        // of a row of W
  int slices;        // of the chunks
  int slice_chunks;  // in each slice; fewer in the last
  int scale_stride;  // per tensor 0, per channel 1, per block ceil(k / 128)
  bool y_is_f32;
};

enum class Weights : uint8_t { bf16, e4m3, e4m3_blocks };

template <Weights kWeights>
inline constexpr int kBytes = kWeights == Weights::bf16 ? 2 : 1;  // of a weight
template <Weights kWeights>
inline constexpr int kChunkColumns = kChunkBytes / kBytes<kWeights>;

// Chunks of k for which x fits a multiplier's registers, for 8 * kColumns rows of x.
template <Weights kWeights, int kColumns>
constexpr int slice_limit() {
  return kXRegisters / (kFragments * kColumns * (kWeights == Weights::bf16 ? 4 : 8));
}

template <int kColumns>
struct Shared {
  uint8_t ring[kSlots * kSlotBytes];
  float4 sums[kFinishers][kMultipliers][kColumns][32];
  uint64_t full[kSlots];
  uint64_t empty[kSlots];
  uint64_t sums_full[kFinishers];
  uint64_t sums_empty[kFinishers];
};

__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void bulk_copy_hinted(uint32_t destination, const void* source, int bytes,
                                                 uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], "
      "%4;" ::"r"(destination),
      "l"(source), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ uint4 shared_load16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

// d += A B^T for one warp, 16 x 8 x 16: a[0], a[2] rows lane / 4, a[1], a[3] rows lane / 4 + 8.
__device__ __forceinline__ void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Four e4m3 numbers to bf16, exactly: {1, 3} and {0, 2} of them, as they come out without crossing halves.
// The exponent's bits move to their place, which gives 2^-120 of the number, and the product brings it back.
__device__ __forceinline__ void widen_e4m3(uint32_t packed, uint32_t& odd, uint32_t& even) {
  constexpr uint32_t kSigns = 0x80008000U;
  constexpr uint32_t kMagnitudes = 0x07F007F0U;
  const uint32_t rest_odd = (packed >> 4 & kMagnitudes) | (packed & kSigns);
  const uint32_t rest_even = (packed << 4 & kMagnitudes) | (packed << 8 & kSigns);
  constexpr uint32_t kTwoTo120 = 0x7B807B80U;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(odd) : "r"(rest_odd), "r"(kTwoTo120));
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(even) : "r"(rest_even), "r"(kTwoTo120));
}

// The units of work of a block, in order: all tiles of slice 0, then of slice 1, and so on.
struct Units {
  int begin;
  int end;
};
__device__ __forceinline__ Units my_units(const Params& p) {
  const int64_t all = static_cast<int64_t>(p.tiles) * p.slices;
  return {static_cast<int>(all * blockIdx.x / gridDim.x),
          static_cast<int>(all * (blockIdx.x + 1) / gridDim.x)};
}

__device__ __forceinline__ int chunks_of(const Params& p, int slice) {
  return min(p.slice_chunks, p.chunks - slice * p.slice_chunks);
}

// Row of W that is row `r` of a tile. A gated tile holds 8 gate rows over their 8 up rows.
template <bool kGated>
__device__ __forceinline__ int weight_row(const Params& p, int tile, int r) {
  if constexpr (kGated) {
    return (r < 8 ? 0 : p.n / 2) + min(tile * 8 + r % 8, p.n / 2 - 1);
  } else {
    return min(tile * kTile + r, p.n - 1);
  }
}

template <Weights kWeights, int kColumns, bool kGated>
__device__ __forceinline__ void produce(const Params& p, Shared<kColumns>& shared) {
  const int lane = threadIdx.x % 32;
  const Units units = my_units(p);
  const int64_t row_bytes = static_cast<int64_t>(p.k) * kBytes<kWeights>;
  const uint32_t ring = ptx::shared_address(shared.ring) + lane * kPitch;
  const uint32_t full = ptx::shared_address(shared.full);
  const uint32_t empty = ptx::shared_address(shared.empty);
#if KV8_SKINNY_HINT
  const uint64_t policy = evict_first_policy();
#endif
  int slot = 0;
  uint32_t parity = 1;  // the ring is empty at first
  for (int unit = units.begin; unit < units.end; ++unit) {
    const int slice = unit / p.tiles;
    const int first = slice * p.slice_chunks;
    const uint8_t* row = p.weights + weight_row<kGated>(p, unit - slice * p.tiles, lane % kTile) * row_bytes;
    const int chunks = chunks_of(p, slice);
    for (int chunk = first; chunk < first + chunks; ++chunk) {
      const int64_t at = static_cast<int64_t>(chunk) * kChunkBytes;
      const int bytes = static_cast<int>(min(static_cast<int64_t>(kChunkBytes), row_bytes - at));
      ptx::barrier_wait(empty + slot * 8, parity);
      if (lane == 0) ptx::barrier_arrive_expect(full + slot * 8, kTile * bytes);
      __syncwarp();
      if (lane < kTile) {
#if KV8_SKINNY_HINT
        bulk_copy_hinted(ring + slot * kSlotBytes, row + at, bytes, full + slot * 8, policy);
#else
        ptx::bulk_copy(ring + slot * kSlotBytes, row + at, bytes, full + slot * 8);
#endif
      }
      if (++slot == kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
  }
}

// x of a slice, as the products' second operand: for each chunk, fragment and 8 rows of x, the registers of
// one fragment of W's columns.
template <Weights kWeights, int kColumns>
struct XRegisters {
  static constexpr int kChunks = slice_limit<kWeights, kColumns>();
  static constexpr int kRegisters = kWeights == Weights::bf16 ? 4 : 8;
  static constexpr int kElements = kFragmentBytes / kBytes<kWeights>;  // columns of a fragment
  uint32_t b[kChunks][kFragments][kColumns][kRegisters];

  __device__ __forceinline__ void load(const Params& p, int slice) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const int first = slice * p.slice_chunks * kChunkColumns<kWeights> + warp * kFragments * kElements;
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        const int column = first + chunk * kChunkColumns<kWeights> + f * kElements;
        const bool is_inside = chunk < p.slice_chunks && column < p.k;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const int row = c * 8 + lane / 4;
          uint4 v[kRegisters / 4] = {};
          if (is_inside && row < p.rows) {
            const auto* at = reinterpret_cast<const uint4*>(p.x + static_cast<int64_t>(row) * p.k + column +
                                                            lane % 4 * (kElements / 4));
#pragma unroll
            for (int i = 0; i < kRegisters / 4; ++i) v[i] = at[i];
          }
          uint32_t(&to)[kRegisters] = b[chunk][f][c];
#pragma unroll
          for (int i = 0; i < kRegisters / 4; ++i) {
            if constexpr (kWeights == Weights::bf16) {
              to[4 * i] = v[i].x;
              to[4 * i + 1] = v[i].y;
              to[4 * i + 2] = v[i].z;
              to[4 * i + 3] = v[i].w;
            } else {  // in the order that widen_e4m3 gives: numbers 1, 3 and 0, 2 of four
              to[4 * i] = __byte_perm(v[i].x, v[i].y, 0x7632);
              to[4 * i + 1] = __byte_perm(v[i].x, v[i].y, 0x5410);
              to[4 * i + 2] = __byte_perm(v[i].z, v[i].w, 0x7632);
              to[4 * i + 3] = __byte_perm(v[i].z, v[i].w, 0x5410);
            }
          }
        }
      }
    }
  }
};

// One fragment of 16 rows of W times x.
template <Weights kWeights, int kColumns, int kRegisters>
__device__ __forceinline__ void multiply(float (&d)[kColumns][4], uint4 low, uint4 high,
                                         const uint32_t (&b)[kColumns][kRegisters]) {
  if constexpr (kWeights == Weights::bf16) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      mma_bf16(d[c], low.x, high.x, low.y, high.y, b[c][0], b[c][1]);
      mma_bf16(d[c], low.z, high.z, low.w, high.w, b[c][2], b[c][3]);
    }
  } else {
    const uint32_t packed_low[4] = {low.x, low.y, low.z, low.w};
    const uint32_t packed_high[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t a0, a1, a2, a3;
      widen_e4m3(packed_low[i], a0, a2);
      widen_e4m3(packed_high[i], a1, a3);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) mma_bf16(d[c], a0, a1, a2, a3, b[c][2 * i], b[c][2 * i + 1]);
    }
  }
}

template <Weights kWeights, int kColumns, bool kGated>
__device__ __forceinline__ void multiply_units(const Params& p, Shared<kColumns>& shared) {
  using X = XRegisters<kWeights, kColumns>;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const Units units = my_units(p);
  const uint32_t ring = ptx::shared_address(shared.ring) + lane / 4 * kPitch +
                        warp * kFragments * kFragmentBytes + lane % 4 * 16;
  const uint32_t full = ptx::shared_address(shared.full);
  const uint32_t empty = ptx::shared_address(shared.empty);
  const uint32_t sums_full = ptx::shared_address(shared.sums_full);
  const uint32_t sums_empty = ptx::shared_address(shared.sums_empty);
  int slot = 0;
  uint32_t parity = 0;
  int loaded = -1;
  X x;
  for (int unit = units.begin; unit < units.end; ++unit) {
    const int slice = unit / p.tiles;
    if (slice != loaded) {
      x.load(p, slice);
      loaded = slice;
    }
    const int chunks = chunks_of(p, slice);
    const int first_column =
        slice * p.slice_chunks * kChunkColumns<kWeights> + warp * kFragments * X::kElements;
    // Scales of 128 x 128 blocks: of this tile's first and last 8 rows.
    const float* scale_low = nullptr;
    const float* scale_high = nullptr;
    if constexpr (kWeights == Weights::e4m3_blocks) {
      const int tile = unit - slice * p.tiles;
      scale_low = p.scale + weight_row<kGated>(p, tile, 0) / 128 * p.scale_stride;
      scale_high = p.scale + weight_row<kGated>(p, tile, 8) / 128 * p.scale_stride;
    }
    float d[kColumns][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < X::kChunks; ++chunk) {
      if (chunk >= chunks) break;
      const int column = first_column + chunk * kChunkColumns<kWeights>;
      ptx::barrier_wait(full + slot * 8, parity);
      const uint32_t at = ring + slot * kSlotBytes;
      if constexpr (kWeights == Weights::e4m3_blocks) {
#pragma unroll
        for (int block = 0; block < kFragments / 2; ++block) {
          if (column + block * 128 >= p.k) break;
          const int index = (column + block * 128) / 128;
          const float low_factor = scale_low[index];
          const float high_factor = scale_high[index];
          float part[kColumns][4] = {};
#pragma unroll
          for (int f = 2 * block; f < 2 * block + 2; ++f) {
            if (column + f * X::kElements >= p.k) break;
            multiply<kWeights, kColumns>(part, shared_load16(at + f * kFragmentBytes),
                                         shared_load16(at + 8 * kPitch + f * kFragmentBytes), x.b[chunk][f]);
          }
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            d[c][0] = fmaf(part[c][0], low_factor, d[c][0]);
            d[c][1] = fmaf(part[c][1], low_factor, d[c][1]);
            d[c][2] = fmaf(part[c][2], high_factor, d[c][2]);
            d[c][3] = fmaf(part[c][3], high_factor, d[c][3]);
          }
        }
      } else if (column + kFragments * X::kElements <= p.k) {
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          multiply<kWeights, kColumns>(d, shared_load16(at + f * kFragmentBytes),
                                       shared_load16(at + 8 * kPitch + f * kFragmentBytes), x.b[chunk][f]);
        }
      } else {  // the end of a row; what is behind it in the ring is no weight
#pragma unroll
        for (int f = 0; f < kFragments; ++f) {
          if (column + f * X::kElements >= p.k) break;
          multiply<kWeights, kColumns>(d, shared_load16(at + f * kFragmentBytes),
                                       shared_load16(at + 8 * kPitch + f * kFragmentBytes), x.b[chunk][f]);
        }
      }
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(empty + slot * 8);
      if (++slot == kSlots) {
        slot = 0;
        parity ^= 1;
      }
    }
    const int done = unit - units.begin;
    const int finisher = done % kFinishers;
    ptx::barrier_wait(sums_empty + finisher * 8, (done / kFinishers & 1) ^ 1);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      shared.sums[finisher][warp][c][lane] = make_float4(d[c][0], d[c][1], d[c][2], d[c][3]);
    }
    __syncwarp();
    if (lane == 0) ptx::barrier_arrive(sums_full + finisher * 8);
  }
}

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

template <class T>
__device__ __forceinline__ void store_one(T* y, float value) {
  *y = static_cast<T>(value);
}

// A lane's sums of a tile: rows lane / 4 (s.x, s.y) and that + 8 (s.z, s.w) of W, rows 2 * (lane % 4) (s.x,
// s.z) and that + 1 of x, from `first_row` on.
template <SkinnyProduct::Finish kFinish>
__device__ __forceinline__ void finish(const Params& p, int tile, int first_row, float4 s) {
  constexpr bool kGated =
      kFinish == SkinnyProduct::Finish::silu_gate || kFinish == SkinnyProduct::Finish::gelu_gate;
  const int lane = threadIdx.x % 32;
  const int row = first_row + lane % 4 * 2;
  float low[2] = {s.x, s.y};
  float high[2] = {s.z, s.w};
  const int n_low = weight_row<kGated>(p, tile, lane / 4);
  const int n_high = weight_row<kGated>(p, tile, lane / 4 + 8);
  if (p.scale_stride >= 0) {
    const float factor_low = p.scale[n_low * p.scale_stride];
    const float factor_high = p.scale[n_high * p.scale_stride];
    for (float& v : low) v *= factor_low;
    for (float& v : high) v *= factor_high;
  }
  if (p.bias != nullptr) {
    for (float& v : low) v += p.bias[n_low];
    for (float& v : high) v += p.bias[n_high];
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    if (row + e >= p.rows) continue;
    if constexpr (kGated) {
      constexpr Gate kGate = kFinish == SkinnyProduct::Finish::silu_gate ? Gate::silu : Gate::gelu_tanh;
      const int width = p.n / 2;
      const int column = tile * 8 + lane / 4;
      const float value = activate<kGate>(low[e]) * high[e];
      const int64_t at = static_cast<int64_t>(row + e) * width + column;
      if (p.y_is_f32) {
        static_cast<float*>(p.y)[at] = value;
      } else {
        static_cast<__nv_bfloat16*>(p.y)[at] = __float2bfloat16(value);
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = tile * kTile + lane / 4 + 8 * half;
        if (column >= p.n) continue;
        const float value = half == 0 ? low[e] : high[e];
        const int64_t at = static_cast<int64_t>(row + e) * p.n + column;
        if constexpr (kFinish == SkinnyProduct::Finish::add) {
          static_cast<float*>(p.y)[at] += value;
        } else if (p.y_is_f32) {
          static_cast<float*>(p.y)[at] = value;
        } else {
          static_cast<__nv_bfloat16*>(p.y)[at] = __float2bfloat16(value);
        }
      }
    }
  }
}

template <int kColumns, SkinnyProduct::Finish kFinish>
__device__ __forceinline__ void finish_units(const Params& p, Shared<kColumns>& shared, int finisher) {
  const int lane = threadIdx.x % 32;
  const Units units = my_units(p);
  const uint32_t sums_full = ptx::shared_address(shared.sums_full) + finisher * 8;
  const uint32_t sums_empty = ptx::shared_address(shared.sums_empty) + finisher * 8;
  uint32_t parity = 0;
  for (int unit = units.begin + finisher; unit < units.end; unit += kFinishers) {
    ptx::barrier_wait(sums_full, parity);
    parity ^= 1;
    float4 sums[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums[c] = shared.sums[finisher][0][c][lane];
#pragma unroll
      for (int w = 1; w < kMultipliers; ++w) sums[c] = sums[c] + shared.sums[finisher][w][c][lane];
    }
    __syncwarp();
    if (lane == 0) ptx::barrier_arrive(sums_empty);
    const int slice = unit / p.tiles;
    const int tile = unit - slice * p.tiles;
    if (p.slices > 1) {
      auto* partials =
          reinterpret_cast<float4*>(p.partials) + static_cast<int64_t>(tile) * p.slices * kColumns * 32;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) __stcg(partials + (slice * kColumns + c) * 32 + lane, sums[c]);
      __threadfence();
      __syncwarp();
      uint32_t arrived = 0;
      if (lane == 0) arrived = atomicAdd(p.arrivals + tile, 1U);
      arrived = __shfl_sync(~0U, arrived, 0);
      if (arrived + 1 < static_cast<uint32_t>(p.slices)) continue;
      __threadfence();
      if (lane == 0) p.arrivals[tile] = 0;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        sums[c] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
#pragma unroll 4
        for (int s = 0; s < p.slices; ++s)
          sums[c] = sums[c] + __ldcg(partials + (s * kColumns + c) * 32 + lane);
      }
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) finish<kFinish>(p, tile, 8 * c, sums[c]);
  }
}

template <Weights kWeights, int kColumns, SkinnyProduct::Finish kFinish>
__global__ void __launch_bounds__(kThreads, 2) skinny_kernel(const __grid_constant__ Params p) {
  constexpr bool kGated =
      kFinish == SkinnyProduct::Finish::silu_gate || kFinish == SkinnyProduct::Finish::gelu_gate;
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<Shared<kColumns>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      ptx::barrier_init(ptx::shared_address(&shared.full[i]), 1);
      ptx::barrier_init(ptx::shared_address(&shared.empty[i]), kMultipliers);
    }
    for (int i = 0; i < kFinishers; ++i) {
      ptx::barrier_init(ptx::shared_address(&shared.sums_full[i]), kMultipliers);
      ptx::barrier_init(ptx::shared_address(&shared.sums_empty[i]), 1);
    }
    ptx::barrier_init_fence();
  }
  __syncthreads();
  const int warp = threadIdx.x / 32;
  if (warp < kMultipliers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
#if KV8_SKINNY_TRIGGER == 0
    ptx::launch_dependents();
#endif
    ptx::dependency_wait();
#if KV8_SKINNY_TRIGGER == 1
    ptx::launch_dependents();
#endif
    multiply_units<kWeights, kColumns, kGated>(p, shared);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
    if (warp == kMultipliers) {
      produce<kWeights, kColumns, kGated>(p, shared);
    } else if (warp <= kMultipliers + kFinishers) {
      ptx::dependency_wait();
      finish_units<kColumns, kFinish>(p, shared, warp - kMultipliers - 1);
    }
  }
}

}  // namespace kv8::ops::cuda::skinny
