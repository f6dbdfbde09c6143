// What a warpgroup does with one tile of keys in the prefill kernel, step by step. A thread has two rows of
// the warpgroup's 64: "upper" and, 8 below it, "lower". x[0 .. 63] are their scores: x[4j + e] upper, x[4j +
// 2 + e] lower, key 8j + lane % 4 * 2 + e. The same registers then take P V of the tile.
#pragma once

#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/ptx/math.cuh"
#include "attention/cuda/ptx/wgmma.cuh"
#include "attention/cuda/sm90/kernel_params.h"
#include "attention/cuda/sm90/shapes.h"

namespace kv8::attention::cuda::sm90 {

constexpr int kScores =
    68;  // 64 scores, or 64 outputs and the sum of P (in 4 registers, of which two matter)

template <int kCount>
__device__ __forceinline__ void hold_first(float (&x)[kScores]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

// S = Q K^T in the tensor core's own accumulator. q, k: low words of descriptors.
template <int kHeadDim>
__device__ __forceinline__ void tile_scores(float (&x)[kScores], uint32_t q, uint32_t k) {
  using Mma = ptx::WgmmaE4m3<128>;
  using Operand = ptx::Descriptor<kHeadDim == 64 ? 64 : 128>;
  ptx::wgmma_fence();
  Mma::zero_shared(x, Operand::of(q), Operand::of(k));
#pragma unroll
  for (int step = 1; step < kHeadDim / 32; ++step) {
    Mma::add_shared(x, Operand::of(q + ((step / 4 * kPrefillRows * 128 + step % 4 * 32) >> 4)),
                    Operand::of(k + ((step / 4 * kPageTokens * 128 + step % 4 * 32) >> 4)));
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  hold_first<64>(x);
}

// The same for one warp's 16 rows through mma.sync, whose sums are exact: 3 times as slow, but it needs
// neither a barrier nor the other warps. q, k: addresses of the images.
template <int kHeadDim>
__device__ __forceinline__ void exact_tile_scores(float (&x)[kScores], uint32_t q, uint32_t k) {
  constexpr int kRowBytes = kHeadDim == 64 ? 64 : 128;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 % 4;
  // All rows that a lane touches agree modulo 8, so that they share one swizzle.
  const int row = lane / 4;
  const uint32_t swizzle = kHeadDim == 64 ? row / 2 % 4 * 16 : row * 16;
  q += (warp * 16 + row) * kRowBytes + lane % 4 * 4;
  k += row * kRowBytes + lane % 4 * 4;
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("mov.f32 %0, 0f00000000;" : "+f"(x[i]));
#pragma unroll 1
  for (int chunk = 0; chunk < kHeadDim / 16; ++chunk) {
    const uint32_t byte = (chunk % 8 * 16) ^ swizzle;
    const uint32_t query = q + chunk / 8 * kPrefillRows * 128 + byte;
    const uint32_t key = k + chunk / 8 * kPageTokens * 128 + byte;
    uint32_t upper;
    uint32_t lower;
    asm volatile("ld.shared.b32 %0, [%2]; ld.shared.b32 %1, [%2 + %3];"
                 : "=r"(upper), "=r"(lower)
                 : "r"(query), "n"(8 * kRowBytes)
                 : "memory");
    // The order of the 16 dims doesn't matter, so long as it is the same on both sides.
    uint32_t a[4];
    ptx::widen_e4m3x4(upper, a[0], a[2]);
    ptx::widen_e4m3x4(lower, a[1], a[3]);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      uint32_t b;
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(b) : "r"(key + j * 8 * kRowBytes) : "memory");
      uint32_t b0;
      uint32_t b1;
      ptx::widen_e4m3x4(b, b0, b1);
      ptx::mma_f16(x + 4 * j, a, b0, b1);
    }
  }
}

// newest: the last key that a row sees, oldest: the one before the first; both counted from the tile's first
// key.
__device__ __forceinline__ void mask_tile(float (&x)[kScores], int2 newest, int2 oldest) {
  const int column = threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = 8 * j + column + e;
      if (key > newest.x || key <= oldest.x) x[4 * j + e] = -INFINITY;
      if (key > newest.y || key <= oldest.y) x[4 * j + 2 + e] = -INFINITY;
    }
  }
}

// What is masked stays so.
__device__ __forceinline__ float soft_cap_score(float score, float cap, float inverse_cap) {
  return score <= kNothing ? score : ptx::soft_cap(score, cap, inverse_cap);
}

__device__ __forceinline__ void soft_cap_tile(float (&x)[kScores], float2 scale, float cap,
                                              float inverse_cap) {
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = soft_cap_score(x[i] * (i & 2 ? scale.y : scale.x), cap, inverse_cap);
}

__device__ __forceinline__ float2 quad_max(float upper, float lower) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    upper = fmaxf(upper, __shfl_xor_sync(~0U, upper, step));
    lower = fmaxf(lower, __shfl_xor_sync(~0U, lower, step));
  }
  return {upper, lower};
}

// Maxima of the two rows. Read as integers, floats compare rightly if one is positive, and the integer unit
// takes the maximum of three at once; rows all negative are done again.
__device__ __forceinline__ float2 row_maxima(const float (&x)[kScores]) {
  auto bits = [&](int i) { return __float_as_int(x[i]); };
  int upper[2] = {max(bits(0), bits(1)), max(bits(32), bits(33))};
  int lower[2] = {max(bits(2), bits(3)), max(bits(34), bits(35))};
#pragma unroll
  for (int j = 1; j < 8; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      upper[half] = __vimax3_s32(upper[half], bits(32 * half + 4 * j), bits(32 * half + 4 * j + 1));
      lower[half] = __vimax3_s32(lower[half], bits(32 * half + 4 * j + 2), bits(32 * half + 4 * j + 3));
    }
  }
  int2 top = {max(upper[0], upper[1]), max(lower[0], lower[1])};
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const int x_other = __shfl_xor_sync(~0U, top.x, step);
    const int y_other = __shfl_xor_sync(~0U, top.y, step);
    top = {max(top.x, x_other), max(top.y, y_other)};
  }
  if (__any_sync(~0U, (top.x | top.y) < 0)) {
    float a = x[0];
    float b = x[2];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      a = fmaxf(a, fmaxf(x[4 * j], x[4 * j + 1]));
      b = fmaxf(b, fmaxf(x[4 * j + 2], x[4 * j + 3]));
    }
    return quad_max(a, b);
  }
  return {__int_as_float(top.x), __int_as_float(top.y)};
}

// P = e4m3(2^(x * scale + offset)), packed as the second product's left operand; V^T's columns are permuted
// to fit.
__device__ __forceinline__ void tile_probabilities(const float (&x)[kScores], float2 scale, float2 offset,
                                                   uint32_t (&packed)[16]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    float e[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      e[k] = ptx::exp2_approx(k & 2 ? fmaf(x[8 * i + k], scale.y, offset.y)
                                    : fmaf(x[8 * i + k], scale.x, offset.x));
    }
    packed[2 * i] = ptx::to_e4m3x4(e[0], e[1], e[4], e[5]);
    packed[2 * i + 1] = ptx::to_e4m3x4(e[2], e[3], e[6], e[7]);
  }
}

// Starts P V of kColumns rows of V^T (v: low word of a descriptor); behind V^T lie 8 rows of ones, so that 8
// columns more give the sum of P.
template <int kColumns>
__device__ __forceinline__ void start_tile_product(float* x, const uint32_t (&packed)[16], uint32_t v) {
  using Mma = ptx::WgmmaE4m3<kColumns>;
  using Operand = ptx::Descriptor<128>;
  ptx::wgmma_fence();
  Mma::zero_registers(x, packed, Operand::of(v));
#pragma unroll
  for (int step = 1; step < 4; ++step)
    Mma::add_registers(x, packed + 4 * step, Operand::of(v + (step * 32 >> 4)));
}

// output += x * weight, row by row.
template <int kCount>
__device__ __forceinline__ void add_tile(float* output, const float (&x)[kScores], float2 weight) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) output[i] = fmaf(x[i], i & 2 ? weight.y : weight.x, output[i]);
}

}  // namespace kv8::attention::cuda::sm90
