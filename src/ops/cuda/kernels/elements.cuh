// Eight numbers at a time, as float32, from and to the element types of activations and weights.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/cuda/ptx/barrier.cuh"

namespace kv8::ops::cuda {

namespace ptx = attention::cuda::ptx;

constexpr int kVector = 8;  // elements that a thread loads and stores together

struct Eight {
  float x[kVector];
};

__device__ __forceinline__ Eight load8(const float* p) {
  const float4 a = reinterpret_cast<const float4*>(p)[0];
  const float4 b = reinterpret_cast<const float4*>(p)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ Eight load8(const __nv_bfloat16* p) {
  const uint4 packed = *reinterpret_cast<const uint4*>(p);
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out.x[2 * i] = __uint_as_float(pairs[i] << 16);
    out.x[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000U);
  }
  return out;
}

__device__ __forceinline__ Eight load8(const __half* p) {
  const uint4 packed = *reinterpret_cast<const uint4*>(p);
  const uint32_t pairs[4] = {packed.x, packed.y, packed.z, packed.w};
  Eight out;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
    out.x[2 * i] = two.x;
    out.x[2 * i + 1] = two.y;
  }
  return out;
}

__device__ __forceinline__ void store8(float* p, const Eight& v) {
  reinterpret_cast<float4*>(p)[0] = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(v.x[4], v.x[5], v.x[6], v.x[7]);
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ void store8(__nv_bfloat16* p, const Eight& v) {
  *reinterpret_cast<uint4*>(p) = make_uint4(pack_bf16(v.x[0], v.x[1]), pack_bf16(v.x[2], v.x[3]),
                                            pack_bf16(v.x[4], v.x[5]), pack_bf16(v.x[6], v.x[7]));
}

// Sum over the block, the same in all threads and in the same order every time. `partial` is 32 floats of
// shared memory that nobody else uses until the next call with the same memory, which needs a barrier
// between.
__device__ __forceinline__ float block_sum(float x, float* partial) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0U, x, distance);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0.0F;
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0U, x, distance);
  return x;
}

}  // namespace kv8::ops::cuda
