#include <algorithm>

#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/elementwise.h"
#include "ops/cuda/kernels/gate.cuh"

namespace kv8::ops::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kLargestGrid = 1 << 20;  // of loops that stride over the rest

unsigned blocks(int64_t vectors) {
  return static_cast<unsigned>(std::min((vectors + kThreads - 1) / kThreads, kLargestGrid));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const T* table, int64_t vocab, const int32_t* tokens, float scale, int cols, float* out) {
  ptx::launch_dependents();
  ptx::dependency_wait();
  const int64_t row = blockIdx.x;
  const int32_t token = tokens[row];
  const bool is_token = token >= 0 && token < vocab;
  for (int i = static_cast<int>(threadIdx.x) * kVector; i < cols; i += kThreads * kVector) {
    Eight v = {};
    if (is_token) v = load8(table + token * static_cast<int64_t>(cols) + i);
#pragma unroll
    for (float& x : v.x) x *= scale;
    store8(out + row * cols + i, v);
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_kernel(const uint4* x, int64_t x_rows, const int32_t* rows, int vectors, uint4* out) {
  ptx::launch_dependents();
  ptx::dependency_wait();
  const int64_t row = blockIdx.x;
  const int64_t from = rows[row];
  const bool is_row = from >= 0 && from < x_rows;
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads) {
    out[row * vectors + i] = is_row ? x[from * vectors + i] : make_uint4(0, 0, 0, 0);
  }
}

template <Gate kGate>
__global__ void __launch_bounds__(kThreads)
    gated_kernel(const __nv_bfloat16* x, int64_t vectors, int vectors_a_row, __nv_bfloat16* out) {
  ptx::launch_dependents();
  ptx::dependency_wait();
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < vectors;
       i += gridDim.x * int64_t{kThreads}) {
    const int64_t row = i / vectors_a_row;
    const __nv_bfloat16* gate_at = x + (i + row * vectors_a_row) * kVector;
    Eight gate = load8(gate_at);
    const Eight up = load8(gate_at + static_cast<int64_t>(vectors_a_row) * kVector);
#pragma unroll
    for (int e = 0; e < kVector; ++e) gate.x[e] = activate<kGate>(gate.x[e]) * up.x[e];
    store8(out + i * kVector, gate);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) cap_kernel(const T* x, int64_t vectors, float cap, float* out) {
  ptx::launch_dependents();
  ptx::dependency_wait();
  const float inverse = cap > 0.0F ? 1.0F / cap : 0.0F;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < vectors;
       i += gridDim.x * int64_t{kThreads}) {
    Eight v = load8(x + i * kVector);
    if (cap > 0.0F) {
#pragma unroll
      for (float& e : v.x) e = cap * tanhf(e * inverse);
    }
    store8(out + i * kVector, v);
  }
}

Status check_vectors(const char* caller, const char* what, int64_t count, const void* in, const void* out) {
  if (count <= 0 || count % kVector != 0 || count > INT32_MAX) {
    return unsupported("%s: %s is %lld, expected a positive multiple of %d", caller, what,
                       static_cast<long long>(count), kVector);
  }
  if (in == nullptr || out == nullptr || !is_aligned16(in) || !is_aligned16(out)) {
    return invalid_argument("%s: input and output must be 16-byte aligned device memory", caller);
  }
  return {};
}

}  // namespace

Status embed(cudaStream_t stream, const void* table, DType table_type, int64_t vocab, const int32_t* tokens,
             float scale, int64_t rows, int64_t cols, float* out) {
  if (rows == 0) return {};
  if (Status status = check_vectors("embed", "the table's columns", cols, table, out); !status) return status;
  const dim3 grid(static_cast<unsigned>(rows));
  const auto launch = [&](auto kernel, const auto* typed) {
    return cuda_status(launch_overlapped(kernel, grid, kThreads, 0, stream, typed, vocab, tokens, scale,
                                         static_cast<int>(cols), out),
                       "launch of embed_kernel");
  };
  switch (table_type) {
    case DType::bf16:
      return launch(embed_kernel<__nv_bfloat16>, static_cast<const __nv_bfloat16*>(table));
    case DType::f16:
      return launch(embed_kernel<__half>, static_cast<const __half*>(table));
    case DType::f32:
      return launch(embed_kernel<float>, static_cast<const float*>(table));
    default:
      return unsupported("embed: the table must be bf16, f16 or f32");
  }
}

Status gather_rows(cudaStream_t stream, const void* x, int64_t x_rows, const int32_t* rows, int64_t count,
                   int64_t row_bytes, void* out) {
  if (count == 0) return {};
  if (row_bytes <= 0 || row_bytes % 16 != 0 || !is_aligned16(x) || !is_aligned16(out)) {
    return unsupported("gather_rows: rows of %lld bytes, expected a multiple of 16, aligned likewise",
                       static_cast<long long>(row_bytes));
  }
  return cuda_status(launch_overlapped(gather_kernel, dim3(static_cast<unsigned>(count)), kThreads, 0, stream,
                                       static_cast<const uint4*>(x), x_rows, rows,
                                       static_cast<int>(row_bytes / 16), static_cast<uint4*>(out)),
                     "launch of gather_kernel");
}

Status gated_activation(cudaStream_t stream, Gate gate, const void* x, int64_t rows, int64_t n, void* out) {
  if (rows == 0) return {};
  if (Status status = check_vectors("gated_activation", "the width", n, x, out); !status) return status;
  const int64_t vectors = rows * (n / kVector);
  const auto launch = [&](auto kernel) {
    return cuda_status(launch_overlapped(kernel, dim3(blocks(vectors)), kThreads, 0, stream,
                                         static_cast<const __nv_bfloat16*>(x), vectors,
                                         static_cast<int>(n / kVector), static_cast<__nv_bfloat16*>(out)),
                       "launch of gated_kernel");
  };
  return gate == Gate::silu ? launch(gated_kernel<Gate::silu>) : launch(gated_kernel<Gate::gelu_tanh>);
}

Status soft_cap(cudaStream_t stream, const void* x, DType x_type, int64_t count, float cap, float* out) {
  if (count == 0) return {};
  if (count % kVector != 0 || !is_aligned16(x) || !is_aligned16(out)) {
    return unsupported("soft_cap: %lld numbers, expected a multiple of %d, 16-byte aligned",
                       static_cast<long long>(count), kVector);
  }
  if (!(cap >= 0.0F)) return invalid_argument("soft_cap: cap is %g", static_cast<double>(cap));
  const int64_t vectors = count / kVector;
  const auto launch = [&](auto kernel, const auto* typed) {
    return cuda_status(
        launch_overlapped(kernel, dim3(blocks(vectors)), kThreads, 0, stream, typed, vectors, cap, out),
        "launch of cap_kernel");
  };
  if (x_type == DType::bf16) return launch(cap_kernel<__nv_bfloat16>, static_cast<const __nv_bfloat16*>(x));
  if (x_type == DType::f32) return launch(cap_kernel<float>, static_cast<const float*>(x));
  return unsupported("soft_cap: x must be bf16 or f32");
}

}  // namespace kv8::ops::cuda
