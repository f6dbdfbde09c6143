#include "ops/cuda/kernels/skinny.cuh"
#include "ops/cuda/kernels/skinny.h"

namespace kv8::ops::cuda {

namespace {

using Finish = SkinnyProduct::Finish;
using skinny::Params;
using skinny::Weights;

constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Slices for a row of so many chunks, as even as they come.
int slice_count(int chunks, int limit) {
  return static_cast<int>(divide_up(chunks, limit));
}

template <Weights kWeights, int kColumns, Finish kFinish>
Status launch(cudaStream_t stream, Params p, int multiprocessors) {
  p.slices = slice_count(p.chunks, skinny::slice_limit<kWeights, kColumns>());
  p.slice_chunks = static_cast<int>(divide_up(p.chunks, p.slices));
  constexpr size_t kShared = sizeof(skinny::Shared<kColumns>);
  const auto kernel = skinny::skinny_kernel<kWeights, kColumns, kFinish>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  if (raised != cudaSuccess) return cuda_status(raised, "skinny_product: shared memory of skinny_kernel");
  const int64_t units = static_cast<int64_t>(p.tiles) * p.slices;
  return cuda_status(
      launch_overlapped(kernel, dim3(static_cast<unsigned>(std::min<int64_t>(units, multiprocessors))),
                        skinny::kThreads, kShared, stream, p),
      "launch of skinny_kernel");
}

template <Weights kWeights, int kColumns>
Status launch_finish(cudaStream_t stream, const SkinnyProduct& product, const Params& p,
                     int multiprocessors) {
  switch (product.finish) {
    case Finish::store:
      return launch<kWeights, kColumns, Finish::store>(stream, p, multiprocessors);
    case Finish::add:
      return launch<kWeights, kColumns, Finish::add>(stream, p, multiprocessors);
    case Finish::silu_gate:
      return launch<kWeights, kColumns, Finish::silu_gate>(stream, p, multiprocessors);
    default:
      return launch<kWeights, kColumns, Finish::gelu_gate>(stream, p, multiprocessors);
  }
}

template <Weights kWeights>
Status launch_rows(cudaStream_t stream, const SkinnyProduct& product, const Params& p, int multiprocessors) {
  return product.rows <= 8 ? launch_finish<kWeights, 1>(stream, product, p, multiprocessors)
                           : launch_finish<kWeights, 2>(stream, product, p, multiprocessors);
}

Status check(const SkinnyProduct& p) {
  const bool is_fp8 = p.weight_type == DType::f8_e4m3;
  if (p.weight_type != DType::bf16 && !is_fp8)
    return unsupported("skinny_product: weights must be bf16 or f8_e4m3");
  if (p.rows < 1 || p.rows > kSkinnyRows)
    return unsupported("skinny_product: %d rows, expected 1 to %d", p.rows, kSkinnyRows);
  const int64_t fragment = is_fp8 ? 64 : 32;
  if (p.n <= 0 || p.k <= 0 || p.k % fragment != 0 || p.n > (1 << 28) || p.k > (1 << 28)) {
    return unsupported("skinny_product: weights of %lld x %lld, expected columns in multiples of %lld",
                       static_cast<long long>(p.n), static_cast<long long>(p.k),
                       static_cast<long long>(fragment));
  }
  if (is_fp8 != (p.scale_kind != WeightScale::none) || is_fp8 != (p.scale != nullptr))
    return invalid_argument("skinny_product: f8_e4m3 weights have scales, others none");
  const bool is_gated = p.finish == Finish::silu_gate || p.finish == Finish::gelu_gate;
  if (is_gated && p.n % 16 != 0)
    return unsupported("skinny_product: %lld gate and up rows, expected a multiple of 16",
                       static_cast<long long>(p.n));
  if (p.y_type != DType::f32 && (p.y_type != DType::bf16 || p.finish == Finish::add))
    return unsupported("skinny_product: y must be bf16 or f32, and f32 where it is added to");
  for (const void* pointer :
       {p.weights, p.x, static_cast<const void*>(p.y), static_cast<const void*>(p.workspace)}) {
    if (pointer == nullptr || !is_aligned16(pointer))
      return invalid_argument(
          "skinny_product: weights, x, y and workspace must be 16-byte aligned device memory");
  }
  return {};
}

size_t arrival_bytes(int64_t tiles) {
  return static_cast<size_t>(divide_up(tiles * 4, 256) * 256);
}

}  // namespace

size_t skinny_workspace_bytes(int64_t n, int64_t k) {
  // Most slices: 16 rows. A gated tile has as many rows of W as another.
  const int64_t tiles = divide_up(n, skinny::kTile);
  const int slices = slice_count(static_cast<int>(divide_up(k * 2, skinny::kChunkBytes)),
                                 skinny::slice_limit<Weights::bf16, 2>());
  return arrival_bytes(tiles) + static_cast<size_t>(tiles * slices) * 2 * 32 * sizeof(float4);
}

Status skinny_product(cudaStream_t stream, const SkinnyProduct& product) {
  if (Status status = check(product); !status) return status;
  static const int multiprocessors = [] {
    int device = 0;
    int count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
  }();
  const bool is_gated = product.finish == Finish::silu_gate || product.finish == Finish::gelu_gate;
  const int64_t row_bytes = product.k * (product.weight_type == DType::bf16 ? 2 : 1);
  Params p = {};
  p.weights = static_cast<const uint8_t*>(product.weights);
  p.scale = product.scale;
  p.x = static_cast<const __nv_bfloat16*>(product.x);
  p.bias = product.bias;
  p.y = product.y;
  p.rows = product.rows;
  p.n = static_cast<int>(product.n);
  p.k = static_cast<int>(product.k);
  p.tiles = static_cast<int>(is_gated ? divide_up(product.n / 2, 8) : divide_up(product.n, skinny::kTile));
  p.arrivals = static_cast<uint32_t*>(product.workspace);
  p.partials = reinterpret_cast<float*>(static_cast<uint8_t*>(product.workspace) + arrival_bytes(p.tiles));
  p.chunks = static_cast<int>(divide_up(row_bytes, skinny::kChunkBytes));
  p.y_is_f32 = product.y_type == DType::f32;
  switch (product.scale_kind) {
    case WeightScale::none:
      p.scale_stride = -1;
      return launch_rows<Weights::bf16>(stream, product, p, multiprocessors);
    case WeightScale::per_tensor:
    case WeightScale::per_channel:
      p.scale_stride = product.scale_kind == WeightScale::per_channel ? 1 : 0;
      return launch_rows<Weights::e4m3>(stream, product, p, multiprocessors);
    default:
      p.scale_stride = static_cast<int>(divide_up(product.k, 128));
      return launch_rows<Weights::e4m3_blocks>(stream, product, p, multiprocessors);
  }
}

}  // namespace kv8::ops::cuda
