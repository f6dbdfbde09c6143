// Hopper's BF16 warpgroup product with few columns, D[64][N] (+)= A[64][16] B[N][16]^T, both operands in
// shared memory, bf16 to float32. D lies as that of WgmmaE4m3 does; what wgmma.cuh says of zero_shared holds
// here.
//
// add_shared has A with K contiguous; add_transposed has M contiguous: rows of 64 numbers, one for each K,
// under the 128-byte swizzle. 64 of them are one image, so that Descriptor<128> describes it too: groups of 8
// rows lie one behind the other, 1,024 bytes apart.
#pragma once

#include "attention/cuda/ptx/wgmma.cuh"

namespace kv8::attention::cuda::ptx {

template <int N>
struct WgmmaBf16Columns;

// clang-format off
#define KV8_WGMMA_BF16(NAME, N, R, CONSTRAINT, ADD, TRANSPOSED, A, B)                                          \
  static __device__ __forceinline__ void NAME(float* d, uint64_t a, uint64_t b) {                              \
    asm volatile("{.reg .pred p; setp.ne.b32 p, " ADD ", 0;\n"                                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" KV8_T##R "}, " A ", " B          \
                 ", p, 1, 1, " TRANSPOSED ", 0;}" : KV8_D##R(CONSTRAINT, 0) : "l"(a), "l"(b));                 \
  }
#define KV8_WGMMA_BF16_COLUMNS(N, R, A, B)                                                                     \
  template <>                                                                                                  \
  struct WgmmaBf16Columns<N> {                                                                                 \
    KV8_WGMMA_BF16(zero_shared, N, R, "=f", "0", "0", A, B)                                                    \
    KV8_WGMMA_BF16(add_shared, N, R, "+f", "1", "0", A, B)                                                     \
    KV8_WGMMA_BF16(zero_transposed, N, R, "=f", "0", "1", A, B)                                                \
    KV8_WGMMA_BF16(add_transposed, N, R, "+f", "1", "1", A, B)                                                 \
  }
// clang-format on

KV8_WGMMA_BF16_COLUMNS(8, 4, "%4", "%5");
KV8_WGMMA_BF16_COLUMNS(16, 8, "%8", "%9");
KV8_WGMMA_BF16_COLUMNS(32, 16, "%16", "%17");

#undef KV8_WGMMA_BF16_COLUMNS
#undef KV8_WGMMA_BF16

// Four 8 x 8 matrices of 16-bit numbers to shared memory, transposed: lane 8m + c gives the address where
// column c of matrix m becomes a row of 16 bytes; registers[m] holds two neighbouring columns of row lane /
// 4, as an accumulator does.
__device__ __forceinline__ void store_transposed(uint32_t address, const uint32_t (&registers)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(registers[0]), "r"(registers[1]), "r"(registers[2]), "r"(registers[3])
               : "memory");
}

}  // namespace kv8::attention::cuda::ptx
