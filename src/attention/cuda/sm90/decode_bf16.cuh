// What the decode kernel does with a tile of a BF16 cache: the two products, and P between them. 16-bit
// products are summed to float32 by the tensor core, so Q K^T needs no second level.
#pragma once

#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/ptx/math.cuh"
#include "attention/cuda/ptx/wgmma_columns.cuh"
#include "attention/cuda/sm90/decode_tile.cuh"

namespace kv8::attention::cuda::sm90 {

template <int kHeadDim, int kColumns>
struct DecodeTile<CacheFormat::bf16, kHeadDim, kColumns, Fp8Accumulate::tile> {
  using Mma = ptx::WgmmaBf16Columns<kColumns>;
  using Operand = ptx::Descriptor<128>;
  static constexpr int kRegisters = kColumns / 2;
  static constexpr int kStages = 2;  // K, then V
  static constexpr uint32_t kOnes = 0x3F803F80U;
  static constexpr int kKeysPerStep = 16;

  // S^T = K Q^T: s[half][...] are keys 64 half + ... in wgmma's layout.
  static __device__ __forceinline__ void scores(uint32_t keys, uint32_t queries, float (&s)[2][kRegisters]) {
    auto key_operand = [&](int half, int step) {
      return Operand::of(Operand::low(keys) +
                         ((step / 4 * kPageTokens * 128 + half * 64 * 128 + step % 4 * 32) >> 4));
    };
    auto query_operand = [&](int step) {
      return Operand::of(Operand::low(queries) + ((step / 4 * kColumns * 128 + step % 4 * 32) >> 4));
    };
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (step == 0) {
          Mma::zero_shared(s[half], key_operand(half, step), query_operand(step));
        } else {
          Mma::add_shared(s[half], key_operand(half, step), query_operand(step));
        }
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::hold(s[0]);
    ptx::hold(s[1]);
  }

  // P of 8 columns from column 8j on to shared memory: two images of 64 keys, a row a column. p as in FP8.
  static __device__ __forceinline__ void store_probabilities(uint8_t* image, int j, const float (&p)[2][4]) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const uint32_t packed[4] = {ptx::to_bf16x2(p[0][0], p[0][1]), ptx::to_bf16x2(p[0][2], p[0][3]),
                                ptx::to_bf16x2(p[1][0], p[1][1]), ptx::to_bf16x2(p[1][2], p[1][3])};
    const int column = 8 * j + lane % 8;  // of the row whose address this lane gives
    const int chunk = (warp * 2 + lane / 8 % 2) ^ (column % 8);
    ptx::store_transposed(ptx::shared_address(image) + lane / 16 * kColumns * 128 + column * 128 + chunk * 16,
                          packed);
  }

  // Operands of the second product for a step of keys: 64 dims of V, ones in their place, and P.
  static __device__ __forceinline__ uint64_t values(uint32_t low, int block, int step) {
    return Operand::of(low + ((block * kPageTokens * 128 + step * 16 * 128) >> 4));
  }
  static __device__ __forceinline__ uint64_t probabilities(uint32_t low, int step) {
    return Operand::of(low + ((step / 4 * kColumns * 128 + step % 4 * 32) >> 4));
  }
  static __device__ __forceinline__ void multiply_values(float* d, uint64_t a, uint64_t b, bool add) {
    add ? Mma::add_transposed(d, a, b) : Mma::zero_transposed(d, a, b);
  }
  static __device__ __forceinline__ void multiply_ones(float* d, uint64_t a, uint64_t b, bool add) {
    add ? Mma::add_shared(d, a, b) : Mma::zero_shared(d, a, b);
  }
};

}  // namespace kv8::attention::cuda::sm90
