// What the decode kernel does with a tile of an FP8 cache: the two products, and P between them.
#pragma once

#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/math.cuh"
#include "attention/cuda/ptx/wgmma.cuh"
#include "attention/cuda/sm90/decode_tile.cuh"

namespace kv8::attention::cuda::sm90 {

template <int kHeadDim, int kColumns, Fp8Accumulate kMode>
struct DecodeTile<CacheFormat::fp8, kHeadDim, kColumns, kMode> {
  using Mma = ptx::WgmmaE4m3<kColumns>;
  using Operand = ptx::Descriptor<128>;
  static constexpr int kRegisters = Mma::kRegisters;
  static constexpr int kStages = 1;  // K and V come together
  static constexpr uint32_t kOnes = 0x38383838U;
  static constexpr int kKeysPerStep = 32;

  // S^T = K Q^T: s[half][...] are keys 64 half + ... in wgmma's layout. With two levels every 32 dims are
  // summed by the tensor core and added in float32, in order; a batch of such partial sums is in flight at a
  // time.
  static __device__ __forceinline__ void scores(uint32_t keys, uint32_t queries, float (&s)[2][kRegisters]) {
    using RowOperand = ptx::Descriptor<kHeadDim == 64 ? 64 : 128>;
    constexpr int kRowBytes = kHeadDim == 64 ? 64 : 128;
    constexpr int kSteps = kHeadDim / 32;
    constexpr int kBatch = kColumns == 8 ? kSteps : 32 / kColumns;  // what the registers hold
    auto key_operand = [&](int half, int step) {
      return RowOperand::of(RowOperand::low(keys) +
                            ((step / 4 * kPageTokens * 128 + half * 64 * kRowBytes + step % 4 * 32) >> 4));
    };
    auto query_operand = [&](int step) {
      return RowOperand::of(RowOperand::low(queries) + ((step / 4 * kColumns * 128 + step % 4 * 32) >> 4));
    };
    if constexpr (kMode != Fp8Accumulate::tile) {
      ptx::wgmma_fence();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Mma::zero_shared(s[half], key_operand(half, 0), query_operand(0));
#pragma unroll
        for (int step = 1; step < kSteps; ++step)
          Mma::add_shared(s[half], key_operand(half, step), query_operand(step));
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::hold(s[0]);
      ptx::hold(s[1]);
    } else {
#pragma unroll
      for (int base = 0; base < kSteps; base += kBatch) {
        float part[kBatch][2][kRegisters];
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            Mma::zero_shared(part[i][half], key_operand(half, base + i), query_operand(base + i));
          }
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            ptx::hold(part[i][half]);
#pragma unroll
            for (int e = 0; e < kRegisters; ++e) {
              s[half][e] = base + i == 0 ? part[i][half][e] : s[half][e] + part[i][half][e];
            }
          }
        }
      }
    }
  }

  // P of 8 columns from column 8j on to shared memory, keys in the order of V^T's rows: each lane pair swaps
  // so that a lane has 4 neighbouring positions of one column. p[half][2r + c]: key 64 half + 16 warp + 8r +
  // lane / 4, column 8j + lane % 4 * 2 + c.
  static __device__ __forceinline__ void store_probabilities(uint8_t* image, int j, const float (&p)[2][4]) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const bool odd = (lane & 4) != 0;
    const int column = 8 * j + lane % 4 * 2 + odd;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pairs[2] = {ptx::to_e4m3x2(p[half][0], p[half][2]),
                                 ptx::to_e4m3x2(p[half][1], p[half][3])};
      const uint32_t received = __shfl_xor_sync(~0U, odd ? pairs[0] : pairs[1], 4);
      const uint32_t word =
          odd ? __byte_perm(received, pairs[1], 0x5140) : __byte_perm(pairs[0], received, 0x5140);
      const int chunk = (half * 4 + warp) ^ (column % 8);
      *reinterpret_cast<uint32_t*>(image + column * 128 + chunk * 16 + lane / 8 * 4) = word;
    }
  }

  // Operands of the second product for a step of keys: 64 rows of V^T, ones in their place, and P.
  static __device__ __forceinline__ uint64_t values(uint32_t low, int block, int step) {
    return Operand::of(low + ((block * 64 * 128 + step * 32) >> 4));
  }
  static __device__ __forceinline__ uint64_t probabilities(uint32_t low, int step) {
    return Operand::of(low + (step * 32 >> 4));
  }
  static __device__ __forceinline__ void multiply_values(float* d, uint64_t a, uint64_t b, bool add) {
    add ? Mma::add_shared(d, a, b) : Mma::zero_shared(d, a, b);
  }
  static __device__ __forceinline__ void multiply_ones(float* d, uint64_t a, uint64_t b, bool add) {
    add ? Mma::add_shared(d, a, b) : Mma::zero_shared(d, a, b);
  }
};

}  // namespace kv8::attention::cuda::sm90
