// Hopper's FP8 warpgroup product, D[64][N] (+)= A[64][32] B[N][32]^T, e4m3 to float32, for the N the kernels
// use.
//
// Thread t of the warpgroup (warp w, lane l) holds of D, for each group j of 8 columns, d[4j + 2r + e]: row
// 16w + 8r + l / 4, column 8j + l % 4 * 2 + e. An A operand in registers is laid out likewise, 4 bytes for
// each float pair: a[0], a[2] rows l / 4, a[1], a[3] rows l / 4 + 8.
//
// zero_shared writes D without reading it ("=f"): were it read, the compiler would have to keep the old
// accumulators alive, and spills. zero_registers doesn't read it either, but says so ("+f"): then the product
// lands in the registers that held the scores, where the compiler would pick others, and spill. Between the
// last product and the first use of D: wgmma_commit, wgmma_wait, hold.
#pragma once

#include <cstdint>

namespace kv8::attention::cuda::ptx {

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `Pending` groups are unfinished.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
// Keeps uses of the accumulators behind the wait before it.
template <int Count>
__device__ __forceinline__ void hold(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// A shared-memory operand with K contiguous, in 8-row groups one after the other, under the swizzle of that
// many bytes. The low word moves by (bytes >> 4) when the operand does; the high word is constant.
template <int SwizzleBytes>
struct Descriptor {
  static constexpr uint32_t kHigh = (8 * SwizzleBytes >> 4) | (SwizzleBytes == 128 ? 1U << 30 : 2U << 30);
  static __device__ __forceinline__ uint32_t low(uint32_t address) { return address >> 4 | 1U << 16; }
  static __device__ __forceinline__ uint64_t of(uint32_t low) {
    return static_cast<uint64_t>(kHigh) << 32 | low;
  }
};
// Eight rows that stand for any number of them: the stride between groups is 0.
struct RepeatedRows {
  static __device__ __forceinline__ uint64_t of(uint32_t address) {
    return static_cast<uint64_t>(1U << 30) << 32 | (address >> 4 | 1U << 16);
  }
};

template <int N>
struct WgmmaE4m3;

// The registers d[0 .. N / 2 - 1] as asm operands, each with constraint C, and as text.
#define KV8_D4(C, I) C(d[I]), C(d[(I) + 1]), C(d[(I) + 2]), C(d[(I) + 3])
#define KV8_D8(C, I) KV8_D4(C, I), KV8_D4(C, (I) + 4)
#define KV8_D16(C, I) KV8_D8(C, I), KV8_D8(C, (I) + 8)
#define KV8_D32(C, I) KV8_D16(C, I), KV8_D16(C, (I) + 16)
#define KV8_D36(C, I) KV8_D32(C, I), KV8_D4(C, (I) + 32)
#define KV8_D64(C, I) KV8_D32(C, I), KV8_D32(C, (I) + 32)
#define KV8_D68(C, I) KV8_D64(C, I), KV8_D4(C, (I) + 64)

#define KV8_T4 "%0,%1,%2,%3"
#define KV8_T8 KV8_T4 ",%4,%5,%6,%7"
#define KV8_T16 KV8_T8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define KV8_T32 KV8_T16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define KV8_T36 KV8_T32 ",%32,%33,%34,%35"
#define KV8_T64                                                                      \
  KV8_T36                                                                            \
  ",%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55" \
  ",%56,%57,%58,%59,%60,%61,%62,%63"
#define KV8_T68 KV8_T64 ",%64,%65,%66,%67"

// clang-format off
#define KV8_WGMMA_E4M3(N, R, A0, A1, A2, A3, B)                                                             \
  template <>                                                                                               \
  struct WgmmaE4m3<N> {                                                                                     \
    static constexpr int kRegisters = R;                                                                    \
    static __device__ __forceinline__ void zero_shared(float* d, uint64_t a, uint64_t b) {                  \
      asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0;\n"                                                  \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" KV8_T##R "}, " A0 ", " A1   \
                   ", p, 1, 1;}" : KV8_D##R("=f", 0) : "l"(a), "l"(b));                                     \
    }                                                                                                       \
    static __device__ __forceinline__ void add_shared(float* d, uint64_t a, uint64_t b) {                   \
      asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n"                                                  \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" KV8_T##R "}, " A0 ", " A1   \
                   ", p, 1, 1;}" : KV8_D##R("+f", 0) : "l"(a), "l"(b));                                     \
    }                                                                                                       \
    static __device__ __forceinline__ void zero_registers(float* d, const uint32_t* a, uint64_t b) {        \
      asm volatile("{.reg .pred p; setp.ne.b32 p, 0, 0;\n"                                                  \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" KV8_T##R "}, {" A0 "," A1   \
                   "," A2 "," A3 "}, " B ", p, 1, 1;}" : KV8_D##R("+f", 0)                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                   \
    }                                                                                                       \
    static __device__ __forceinline__ void add_registers(float* d, const uint32_t* a, uint64_t b) {         \
      asm volatile("{.reg .pred p; setp.ne.b32 p, 1, 0;\n"                                                  \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" KV8_T##R "}, {" A0 "," A1   \
                   "," A2 "," A3 "}, " B ", p, 1, 1;}" : KV8_D##R("+f", 0)                                  \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                   \
    }                                                                                                       \
  }
// clang-format on

KV8_WGMMA_E4M3(8, 4, "%4", "%5", "%6", "%7", "%8");
KV8_WGMMA_E4M3(16, 8, "%8", "%9", "%10", "%11", "%12");
KV8_WGMMA_E4M3(32, 16, "%16", "%17", "%18", "%19", "%20");
KV8_WGMMA_E4M3(64, 32, "%32", "%33", "%34", "%35", "%36");
KV8_WGMMA_E4M3(72, 36, "%36", "%37", "%38", "%39", "%40");
KV8_WGMMA_E4M3(128, 64, "%64", "%65", "%66", "%67", "%68");
KV8_WGMMA_E4M3(136, 68, "%68", "%69", "%70", "%71", "%72");

#undef KV8_WGMMA_E4M3

// Four e4m3 numbers to two pairs of fp16, exactly.
__device__ __forceinline__ void widen_e4m3x4(uint32_t packed, uint32_t& low, uint32_t& high) {
  asm("{\n"
      ".reg .b16 a, b;\n"
      "mov.b32 {a, b}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, a;\n"
      "cvt.rn.f16x2.e4m3x2 %1, b;\n"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(packed));
}

// d += A B^T for one warp, 16 x 8 x 16, fp16 to float32: sums are exact to float32, where wgmma's FP8 adder
// keeps 13 bits. d is laid out as above. a: row lane / 4, row lane / 4 + 8, then the same rows' other half of
// k.
__device__ __forceinline__ void mma_f16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : KV8_D4("+f", 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace kv8::attention::cuda::ptx
