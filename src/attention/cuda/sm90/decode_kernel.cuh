// The decode kernel. docs/kernels.md explains it; in short:
//
// Operands are swapped: S^T = K Q^T and O^T = V^T P^T, so that wgmma's 64 rows are keys or dims and the few
// query rows are its N ("columns" here). Four warps compute; a fifth brings tiles of K and V; a sixth brings
// Q. Every CTA walks its share of the plan's line of tiles. A segment that lies in several shares is merged
// by the CTA that finishes last, first within groups of parts, then over the groups.
#pragma once

#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/ptx/math.cuh"
#include "attention/cuda/ptx/wgmma.cuh"
#include "attention/cuda/sm90/decode.h"
#include "attention/cuda/sm90/decode_merge.cuh"
#include "attention/cuda/sm90/decode_tile.cuh"
#include "attention/cuda/sm90/decode_walk.cuh"
#include "attention/cuda/sm90/launch.h"
#include "attention/cuda/sm90/shapes.h"

namespace kv8::attention::cuda::sm90 {

template <CacheFormat kFormat, int kHeadDim, int kColumns>
struct DecodeShared {
  static constexpr int kElement = kFormat == CacheFormat::fp8 ? 1 : 2;  // bytes
  static constexpr int kStages = decode_shape(kFormat, kHeadDim, kColumns).stages;
  static constexpr int kStageBytes = 2 * kPageTokens * kHeadDim;
  static constexpr int kQBytes = (kColumns * kHeadDim * kElement + 1023) / 1024 * 1024;
  static constexpr int kPBytes = kColumns * kPageTokens * kElement;

  // Byte offsets; the images of K, V, Q and P start at multiples of 1,024, as their swizzle wants.
  static constexpr int kOnes = 0;  // 8 rows of 128 bytes
  static constexpr int kTiles = 1024;
  static constexpr int kQ = kTiles + kStages * kStageBytes;  // [2 slots]
  static constexpr int kP = kQ + 2 * kQBytes;
  static constexpr int kScales = kP + kPBytes;  // float [2 slots][columns]: score per unit of q.k
  static constexpr int kMaxima = kScales + 2 * kColumns * 4;  // float [4 warps][columns]
  static constexpr int kBarriers = kMaxima + 4 * kColumns * 4;
  static constexpr int kFlag = kBarriers + (2 * kStages + 4) * 8;
  static constexpr int kTotal = kFlag + 16;
  // Each CTA takes another 1,024 bytes of its multiprocessor's 228 KiB.
  static_assert((kTotal + 1024) * decode_shape(kFormat, kHeadDim, kColumns).ctas <= 228 * 1024);
};

constexpr int kDecodeConsumers = 128;
constexpr int kDecodeThreads = kDecodeConsumers + 64;
constexpr int kConsumerBarrier = 1;

// Two numbers for each of two neighbouring columns, held by two lanes (4 apart): the even lane leaves with
// column 0, the odd one with column 1, own number and partner's in the order (even lane's, odd lane's).
__device__ __forceinline__ float2 pair_columns(float column0, float column1, bool odd) {
  const float received = __shfl_xor_sync(~0U, odd ? column0 : column1, 4);
  return odd ? make_float2(received, column1) : make_float2(column0, received);
}

template <CacheFormat kFormat, int kHeadDim, int kColumns, Fp8Accumulate kMode>
__global__ void __launch_bounds__(kDecodeThreads, decode_shape(kFormat, kHeadDim, kColumns).ctas)
    decode_kernel(const __grid_constant__ KernelParams p) {
  using Shared = DecodeShared<kFormat, kHeadDim, kColumns>;
  using Tile = DecodeTile<kFormat, kHeadDim, kColumns, kMode>;
  using Operand = ptx::Descriptor<128>;
  constexpr int kStages = Shared::kStages;
  constexpr int kRegisters = Tile::kRegisters;  // accumulators of 64 rows
  constexpr int kOwned = kColumns / 4;    // columns of a thread: e = 2j + c is column 8j + lane % 4 * 2 + c
  constexpr int kBlocks = kHeadDim / 64;  // of dims
  constexpr bool kTile = kMode == Fp8Accumulate::tile;

  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t base = ptx::shared_address(shared);
  const uint32_t tile_full = base + Shared::kBarriers;
  const uint32_t tile_empty = tile_full + kStages * 8;
  const uint32_t q_full = tile_empty + kStages * 8;
  const uint32_t q_empty = q_full + 16;
  auto* scales = reinterpret_cast<float*>(shared + Shared::kScales);
  auto* maxima = reinterpret_cast<float*>(shared + Shared::kMaxima);
  auto* flag = reinterpret_cast<int*>(shared + Shared::kFlag);

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(tile_full + i * 8, 1);
      ptx::barrier_init(tile_empty + i * 8, 4);
    }
    for (int i = 0; i < 2; ++i) {
      ptx::barrier_init(q_full + i * 8, 32);
      ptx::barrier_init(q_empty + i * 8, 4);
    }
    ptx::barrier_init_fence();
  }
  if (threadIdx.x < 64) {
    reinterpret_cast<uint4*>(shared + Shared::kOnes)[threadIdx.x] = {Tile::kOnes, Tile::kOnes, Tile::kOnes,
                                                                     Tile::kOnes};
    ptx::async_proxy_fence();
  }
  __syncthreads();
  ptx::launch_dependents();
  ptx::dependency_wait();

  DecodeWalk walk(p);
  DecodeSegment segment;
  if (warp == 4) {  // tiles
    int stage = 0;
    uint32_t parity = 1;
    while (walk.next(segment)) {
      const int32_t* pages = p.page_tables + segment.page_table * p.page_table_stride + segment.position_tile;
      const uint8_t* head = p.pool + segment.head * p.head_stride;
      int32_t upcoming = lane < segment.count ? pages[lane] : 0;
      for (int first = 0; first < segment.count; first += 32) {
        const int32_t mine = upcoming;  // page of tile first + lane
        upcoming = first + 32 + lane < segment.count ? pages[first + 32 + lane] : 0;
        const int count = min(32, segment.count - first);
        for (int i = 0; i < count; ++i) {
          const int32_t page = __shfl_sync(~0U, mine, i);
#pragma unroll
          for (int part = 0; part < Tile::kStages; ++part) {
            if (lane == 0) {
              ptx::barrier_wait(tile_empty + stage * 8, parity);
              ptx::barrier_arrive_expect(tile_full + stage * 8, Shared::kStageBytes);
              ptx::bulk_copy(base + Shared::kTiles + stage * Shared::kStageBytes,
                             head + page * p.page_stride + part * Shared::kStageBytes, Shared::kStageBytes,
                             tile_full + stage * 8);
            }
            if (++stage == kStages) {
              stage = 0;
              parity ^= 1;
            }
          }
        }
      }
    }
    return;
  }
  if (warp == 5) {  // queries and their scales
    int slot = 0;
    uint32_t parity = 1;
    while (walk.next(segment)) {
      const Sequence sequence = p.sequences[segment.sequence];
      const int first_row = segment.row_block * kColumns;
      const int rows = sequence.row_count * p.group - first_row;
      ptx::barrier_wait(q_empty + slot * 8, parity);
      uint8_t* image = shared + Shared::kQ + slot * Shared::kQBytes;
      constexpr int kPerChunk = 16 / Shared::kElement;  // numbers in 16 bytes
      constexpr int kChunks = kHeadDim / kPerChunk;
#pragma unroll
      for (int i = lane; i < kColumns * kChunks; i += 32) {
        const int column = i / kChunks;
        const int dim = i % kChunks * kPerChunk;
        uint4 bytes = {0, 0, 0, 0};
        if (column < rows) {
          const int64_t at = query_index(p, sequence, segment.head, first_row + column) * kHeadDim + dim;
          bytes = *reinterpret_cast<const uint4*>(static_cast<const uint8_t*>(p.q) + at * Shared::kElement);
        }
        *reinterpret_cast<uint4*>(image + row_image_offset(kFormat, kHeadDim, kColumns, column, dim)) = bytes;
      }
      if (lane < kColumns) {
        float scale = p.score_scale;
        if (kFormat == CacheFormat::fp8 && lane < rows) {
          scale *= p.q_scale[query_index(p, sequence, segment.head, first_row + lane)];
          if (p.k_scale != nullptr) scale *= p.k_scale[segment.head];
        }
        scales[slot * kColumns + lane] = scale;
      }
      ptx::async_proxy_fence();
      ptx::barrier_arrive(q_full + slot * 8);  // every lane for what it wrote
      slot ^= 1;
      if (slot == 0) parity ^= 1;
    }
    return;
  }

  const bool odd = (lane & 4) != 0;
  const int column0 = lane % 4 * 2;
  int stage = 0;
  uint32_t parity = 0;
  auto next_stage = [&] {  // this one's products are done
    if (lane == 0) ptx::barrier_arrive(tile_empty + stage * 8);
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  };
  int slot = 0;
  uint32_t q_parity = 0;
  while (walk.next(segment)) {
    const Sequence sequence = p.sequences[segment.sequence];
    const int first_row = segment.row_block * kColumns;
    const int rows = min(kColumns, sequence.row_count * p.group - first_row);
    // Positions of the segment's first and last row: what all rows see needs no mask.
    const int first_position = sequence.first_position + first_row / p.group;
    const int last_position = sequence.first_position + (first_row + rows - 1) / p.group;
    ptx::barrier_wait(q_full + slot * 8, q_parity);
    float scale[kOwned];
#pragma unroll
    for (int e = 0; e < kOwned; ++e) scale[e] = scales[slot * kColumns + e / 2 * 8 + column0 + e % 2];

    float maximum[kOwned];
    float sum[kOwned];
    float output[kBlocks][kRegisters];
#pragma unroll
    for (int e = 0; e < kOwned; ++e) {
      maximum[e] = kNothing;
      sum[e] = 0.0F;
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int e = 0; e < kRegisters; ++e) output[block][e] = 0.0F;
    }

#pragma unroll 1
    for (int tile = 0; tile < segment.count; ++tile) {
      // Opaque to the compiler, which would otherwise keep a descriptor for every step in registers.
      uint32_t keys = base + Shared::kTiles + stage * Shared::kStageBytes;
      uint32_t queries = base + Shared::kQ + slot * Shared::kQBytes;
      asm volatile("" : "+r"(keys), "+r"(queries));
      uint32_t values = keys + kPageTokens * kHeadDim;
      ptx::barrier_wait(tile_full + stage * 8, parity);
      float s[2][kRegisters];
      Tile::scores(keys, queries, s);
      if constexpr (Tile::kStages == 2) {
        next_stage();
        values = base + Shared::kTiles + stage * Shared::kStageBytes;
        asm volatile("" : "+r"(values));
      }

      if (p.soft_cap != 0.0F) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int e = 0; e < kRegisters; ++e) {
            const int own = e / 4 * 2 + e % 2;
            s[half][e] = ptx::soft_cap(s[half][e] * scale[own], p.soft_cap, p.inverse_soft_cap);
          }
        }
      }
      const int first_key = (segment.position_tile + tile) * kPageTokens;
      if (first_key + kPageTokens - 1 > first_position || last_position - first_key >= p.window) {
#pragma unroll
        for (int e = 0; e < kRegisters; ++e) {
          const int column = min(e / 4 * 8 + column0 + e % 2, rows - 1);
          const int position = sequence.first_position + (first_row + column) / p.group;
          const int row = warp * 16 + e / 2 % 2 * 8 + lane / 4;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int age = position - (first_key + half * 64 + row);
            if (age < 0 || age >= p.window) s[half][e] = -INFINITY;
          }
        }
      }

      // The tile's maximum of each column: over the thread's keys, the warp, the four warps.
      float top[kOwned];
#pragma unroll
      for (int e = 0; e < kOwned; ++e) {
        const int at = e / 2 * 4 + e % 2;
        top[e] = fmaxf(fmaxf(s[0][at], s[0][at + 2]), fmaxf(s[1][at], s[1][at + 2]));
#pragma unroll
        for (int step = 4; step < 32; step *= 2) top[e] = fmaxf(top[e], __shfl_xor_sync(~0U, top[e], step));
      }
      if (lane < 4) {
#pragma unroll
        for (int e = 0; e < kOwned; ++e) maxima[warp * kColumns + e / 2 * 8 + column0 + e % 2] = top[e];
      }
      ptx::named_barrier(kConsumerBarrier, kDecodeConsumers);
      float old_weight[kOwned];
      float new_weight[kOwned];
      float offset[kOwned];
      float unit[kOwned];
#pragma unroll
      for (int e = 0; e < kOwned; ++e) {
        const int column = e / 2 * 8 + column0 + e % 2;
        unit[e] = p.soft_cap != 0.0F ? 1.0F : scale[e];
        float largest = fmaxf(fmaxf(maxima[column], maxima[kColumns + column]),
                              fmaxf(maxima[2 * kColumns + column], maxima[3 * kColumns + column])) *
                        unit[e];
        largest = fmaxf(largest, kNothing);
        const float next = fmaxf(maximum[e], largest);
        const float reference = kTile ? largest : next;
        old_weight[e] = ptx::exp2_approx(maximum[e] - next);
        new_weight[e] = ptx::exp2_approx(reference - next);
        offset[e] = kProbabilityExponent - reference;
        maximum[e] = next;
      }

#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        float weights[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int own = 2 * j + e % 2;
            weights[half][e] = ptx::exp2_approx(fmaf(s[half][4 * j + e], unit[own], offset[own]));
          }
        }
        Tile::store_probabilities(shared + Shared::kP, j, weights);
      }
      ptx::async_proxy_fence();
      ptx::named_barrier(kConsumerBarrier, kDecodeConsumers);

      if constexpr (Tile::kStages == 2) ptx::barrier_wait(tile_full + stage * 8, parity);

      // O^T = V^T P^T, and the sum of P by a row of ones, so that it is rounded as O is.
      const uint32_t value_low = Operand::low(values);
      const uint32_t p_low = Operand::low(base + Shared::kP);
      constexpr int kCount =
          kBlocks > 2 && kColumns > 8 ? 2 : kBlocks;  // blocks at a time, as the registers allow
      float ones[kRegisters];
      if constexpr (kMode == Fp8Accumulate::single) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
          for (int e = 0; e < kRegisters; ++e) output[block][e] *= old_weight[e / 4 * 2 + e % 2];
        }
      }
#pragma unroll
      for (int first = 0; first < kBlocks; first += kCount) {
        float part[kCount][kRegisters];
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kPageTokens / Tile::kKeysPerStep; ++step) {
          const uint64_t probabilities = Tile::probabilities(p_low, step);
#pragma unroll
          for (int i = 0; i < kCount; ++i) {
            const uint64_t rows64 = Tile::values(value_low, first + i, step);
            if constexpr (kMode == Fp8Accumulate::single) {
              Tile::multiply_values(output[first + i], rows64, probabilities, true);
            } else {
              Tile::multiply_values(part[i], rows64, probabilities, step > 0);
            }
          }
          if (first == 0)
            Tile::multiply_ones(ones, ptx::RepeatedRows::of(base + Shared::kOnes), probabilities, step > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        if (first + kCount == kBlocks) next_stage();
        if (first == 0) ptx::hold(ones);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          if constexpr (kMode == Fp8Accumulate::single) {
            ptx::hold(output[first + i]);
          } else {
            ptx::hold(part[i]);
#pragma unroll
            for (int e = 0; e < kRegisters; ++e) {
              const int own = e / 4 * 2 + e % 2;
              output[first + i][e] =
                  fmaf(part[i][e], new_weight[own], output[first + i][e] * old_weight[own]);
            }
          }
        }
      }
#pragma unroll
      for (int e = 0; e < kOwned; ++e)
        sum[e] = fmaf(ones[e / 2 * 4 + e % 2], new_weight[e], sum[e] * old_weight[e]);
    }
    if (lane == 0) ptx::barrier_arrive(q_empty + slot * 8);
    slot ^= 1;
    if (slot == 0) q_parity ^= 1;

    if (segment.count == segment.tiles) {  // whole: straight to the output
      const OutputRow<kHeadDim> writer(p, sequence, segment.head, first_row);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        float factor[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          factor[c] = writer.factor(min(8 * j + column0 + c, rows - 1), maximum[2 * j + c], sum[2 * j + c]);
        }
        const int column = 8 * j + column0 + odd;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float2 pair = pair_columns(output[block][4 * j + 2 * r] * factor[0],
                                             output[block][4 * j + 2 * r + 1] * factor[1], odd);
            const int row = block * 64 + warp * 16 + r * 8 + lane / 8 * 2;
            if (column < rows) writer.store(column, output_dim<kFormat>(row), pair);
          }
        }
      }
      continue;
    }

    float* partial = partial_slot<kHeadDim, kColumns>(p, blockIdx.x, segment.at_share_begin ? 0 : 1);
#pragma unroll
    for (int e = 0; e < kOwned; ++e) {
      const int column = e / 2 * 8 + column0 + e % 2;
      if (column >= rows) continue;
      if (warp == 0 && lane < 4) reinterpret_cast<float2*>(partial)[column] = {maximum[e], sum[e]};
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = block * 64 + warp * 16 + r * 8 + lane / 4;
          partial[2 * kColumns + column * kHeadDim + row] = output[block][e / 2 * 4 + 2 * r + e % 2];
        }
      }
    }
    merge_segment<kFormat, kHeadDim, kColumns>(p, walk, segment, sequence, rows, flag);
  }
}

template <CacheFormat kFormat, int kHeadDim, int kColumns, Fp8Accumulate kMode>
cudaError_t launch_decode(const KernelParams& params, int ctas, cudaStream_t stream) {
  return launch(
      decode_kernel<kFormat, kHeadDim, kColumns, kMode>,
      {dim3(static_cast<unsigned>(ctas)), kDecodeThreads, DecodeShared<kFormat, kHeadDim, kColumns>::kTotal},
      stream, params);
}

}  // namespace kv8::attention::cuda::sm90
