// Single instructions that CUDA C++ has no spelling for.
#pragma once

#include <cstdint>

namespace kv8::attention::cuda::ptx {

// 2^x, relative error 2^-22; 0 for -infinity. Every kernel uses this one, so that P is quantised alike.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two numbers to e4m3, nearest even, saturating; `low` in the low byte.
__device__ __forceinline__ uint16_t to_e4m3x2(float low, float high) {
  uint16_t packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ __forceinline__ uint32_t to_e4m3x4(float a, float b, float c, float d) {
  uint32_t packed;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(packed)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return packed;
}

// Two numbers to bf16, nearest even; `low` in the low half.
__device__ __forceinline__ uint32_t to_bf16x2(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Shared memory by address; volatile, so that the value is not kept in registers instead.
__device__ __forceinline__ float2 shared_load2(uint32_t address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
  return value;
}
// Two numbers `offset` bytes apart.
__device__ __forceinline__ float2 shared_load2(uint32_t address, int offset) {
  float2 value;
  asm volatile("ld.shared.f32 %0, [%2]; ld.shared.f32 %1, [%3];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(address), "r"(address + offset)
               : "memory");
  return value;
}
__device__ __forceinline__ float4 shared_load4(uint32_t address) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void shared_store2(uint32_t address, float2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y) : "memory");
}

// cap * tanh(x / cap) with x in units where the exponential is 2^x: 1 - 2 / (e^2y + 1), absolute error 1e-7
// cap.
__device__ __forceinline__ float soft_cap(float x, float cap, float inverse_cap) {
  constexpr float kTwoLog2e = 2.885390081777927F;
  float exponential = exp2_approx(x * inverse_cap * kTwoLog2e);
  return cap - __fdividef(2.0F * cap, exponential + 1.0F);
}

}  // namespace kv8::attention::cuda::ptx
