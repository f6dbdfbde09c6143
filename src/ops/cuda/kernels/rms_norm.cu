// A block takes a row and keeps it in registers, so that each number is read once.
#include <algorithm>

#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/rms_norm.h"

namespace kv8::ops::cuda {

namespace {

constexpr int kMaxThreads = 512;

// A thread's share of a row: vector i of it stands at column (i * blockDim.x + threadIdx.x) * kVector.
template <int kVectors>
struct Share {
  Eight v[kVectors];
};

__device__ __forceinline__ int column(int i) {
  return static_cast<int>(i * blockDim.x + threadIdx.x) * kVector;
}

template <int kVectors, class T>
__device__ __forceinline__ void load_share(Share<kVectors>& share, const T* row, int cols) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    share.v[i] = column(i) < cols ? load8(row + column(i)) : Eight{};
  }
}

template <int kVectors>
__device__ __forceinline__ float inverse_rms(const Share<kVectors>& share, int cols, float epsilon,
                                             float* partial) {
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (float x : share.v[i].x) sum = fmaf(x, x, sum);
  }
  return rsqrtf(block_sum(sum, partial) / static_cast<float>(cols) + epsilon);
}

// kAdds: residual is read and written; else x itself is normed.
template <int kVectors, class T, bool kAdds>
__global__ void __launch_bounds__(kMaxThreads)
    norm_kernel(float* residual, const T* x, const float* post_weight, const float* weight, float epsilon,
                int cols, __nv_bfloat16* out) {
  __shared__ float partials[2][32];
  ptx::launch_dependents();
  Share<kVectors> weights;
  if (out != nullptr) load_share(weights, weight, cols);
  ptx::dependency_wait();
  const int64_t begin = blockIdx.x * static_cast<int64_t>(cols);
  Share<kVectors> row;
  load_share(row, x + begin, cols);
  if constexpr (kAdds) {
    Share<kVectors> sum;
    load_share(sum, residual + begin, cols);
    const float factor = post_weight != nullptr ? inverse_rms(row, cols, epsilon, partials[0]) : 1.0F;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (column(i) >= cols) continue;
      if (post_weight != nullptr) {
        const Eight post = load8(post_weight + column(i));
#pragma unroll
        for (int e = 0; e < kVector; ++e) row.v[i].x[e] *= factor * post.x[e];
      }
#pragma unroll
      for (int e = 0; e < kVector; ++e) row.v[i].x[e] += sum.v[i].x[e];
      store8(residual + begin + column(i), row.v[i]);
    }
    if (out == nullptr) return;
  }
  const float factor = inverse_rms(row, cols, epsilon, partials[1]);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (column(i) >= cols) continue;
#pragma unroll
    for (int e = 0; e < kVector; ++e) row.v[i].x[e] *= factor * weights.v[i].x[e];
    store8(out + begin + column(i), row.v[i]);
  }
}

struct Arguments {
  float* residual;
  const void* x;
  const float* post_weight;
  const float* weight;
  float epsilon;
  int64_t rows;
  int64_t cols;
  void* out;
};

template <int kVectors, class T, bool kAdds>
Status launch(cudaStream_t stream, unsigned threads, const Arguments& a) {
  return cuda_status(
      launch_overlapped(norm_kernel<kVectors, T, kAdds>, dim3(static_cast<unsigned>(a.rows)), threads, 0,
                        stream, a.residual, static_cast<const T*>(a.x), a.post_weight, a.weight, a.epsilon,
                        static_cast<int>(a.cols), static_cast<__nv_bfloat16*>(a.out)),
      "launch of norm_kernel");
}

template <class T, bool kAdds>
Status launch_for_width(cudaStream_t stream, const Arguments& a) {
  const int64_t vectors = a.cols / kVector;
  const auto threads = static_cast<unsigned>(std::min<int64_t>((vectors + 31) / 32 * 32, kMaxThreads));
  if (vectors <= threads) return launch<1, T, kAdds>(stream, threads, a);
  if (vectors <= 2 * threads) return launch<2, T, kAdds>(stream, threads, a);
  return launch<4, T, kAdds>(stream, threads, a);
}

template <bool kAdds>
Status launch_for_type(cudaStream_t stream, const char* caller, DType x_type, const Arguments& a) {
  if (a.rows == 0) return {};
  if (a.cols <= 0 || a.cols % kVector != 0 || a.cols > kLargestNormedRow) {
    return unsupported("%s: rows of %lld numbers, expected a multiple of %d up to %lld", caller,
                       static_cast<long long>(a.cols), kVector, static_cast<long long>(kLargestNormedRow));
  }
  for (const void* pointer : {a.x, static_cast<const void*>(a.residual), static_cast<const void*>(a.weight),
                              static_cast<const void*>(a.post_weight), static_cast<const void*>(a.out)}) {
    if (!is_aligned16(pointer)) return invalid_argument("%s: memory must be 16-byte aligned", caller);
  }
  if (x_type == DType::bf16) return launch_for_width<__nv_bfloat16, kAdds>(stream, a);
  if (x_type == DType::f32) return launch_for_width<float, kAdds>(stream, a);
  return unsupported("%s: x must be bf16 or f32", caller);
}

}  // namespace

Status rms_norm(cudaStream_t stream, const void* x, DType x_type, const float* weight, float epsilon,
                int64_t rows, int64_t cols, void* out) {
  if (x == nullptr || weight == nullptr || out == nullptr) return invalid_argument("rms_norm: null memory");
  return launch_for_type<false>(stream, "rms_norm", x_type,
                                {nullptr, x, nullptr, weight, epsilon, rows, cols, out});
}

Status add_rms_norm(cudaStream_t stream, float* residual, const void* x, DType x_type,
                    const float* post_weight, const float* weight, float epsilon, int64_t rows, int64_t cols,
                    void* out) {
  if (x == nullptr || residual == nullptr || (out != nullptr && weight == nullptr))
    return invalid_argument("add_rms_norm: null memory");
  return launch_for_type<true>(stream, "add_rms_norm", x_type,
                               {residual, x, post_weight, weight, epsilon, rows, cols, out});
}

}  // namespace kv8::ops::cuda
