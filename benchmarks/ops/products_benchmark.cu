// Products with few rows in a captured sequence over different weights, 4 GB in all, far more than the L2:
// GB/s of weights by shape, type and rows, and weighted over a Llama-3.1-8B step. JSON on stdout.
//
//   kv8_ops_cuda_benchmark [bf16|fp8|blocks] [rows ...]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#include "ops/cuda/kernels/skinny.h"

namespace {

using namespace kv8;
using namespace kv8::ops::cuda;

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}
void require(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.message);
  std::exit(1);
}

// Random BF16 numbers below 1/8, or as e4m3 codes: no NaN, exponents of all sizes.
__global__ void fill(uint32_t* p, size_t count) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15ULL;
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9ULL;
    p[i] = static_cast<uint32_t>(x >> 32) & 0xBDFFBDFFU;
  }
}

struct Shape {
  const char* name;
  int64_t n;
  int64_t k;
  int a_step;  // how often in a step of Llama-3.1-8B
  SkinnyProduct::Finish finish;
};

constexpr Shape kShapes[] = {
    {"qkv", 6144, 4096, 32, SkinnyProduct::Finish::store},
    {"o", 4096, 4096, 32, SkinnyProduct::Finish::store},
    {"gate_up", 28672, 4096, 32, SkinnyProduct::Finish::silu_gate},
    {"down", 4096, 14336, 32, SkinnyProduct::Finish::store},
    {"lm_head", 128256, 4096, 1, SkinnyProduct::Finish::store},
    {"up alone", 14336, 4096, 0, SkinnyProduct::Finish::store},
};

struct Type {
  const char* name;
  WeightScale scale;
};
constexpr Type kTypes[] = {
    {"bf16", WeightScale::none}, {"fp8", WeightScale::per_channel}, {"blocks", WeightScale::per_block}};

}  // namespace

int main(int argc, char** argv) {
  const Type* type = kTypes;
  std::vector<int> row_counts;
  for (int i = 1; i < argc; ++i) {
    for (const Type& t : kTypes) {
      if (std::strcmp(argv[i], t.name) == 0) type = &t;
    }
    if (std::atoi(argv[i]) > 0) row_counts.push_back(std::atoi(argv[i]));
  }
  if (row_counts.empty()) row_counts = {1, 8, 16};
  const size_t weight_size = type->scale == WeightScale::none ? 2 : 1;
  constexpr size_t kPool = size_t{4} << 30;
  uint8_t* pool = nullptr;
  void* x = nullptr;
  void* y = nullptr;
  float* scales = nullptr;
  void* workspace = nullptr;
  require(cudaMalloc(&pool, kPool));
  require(cudaMalloc(&x, kSkinnyRows * 14336 * 2));
  require(cudaMalloc(&y, kSkinnyRows * 128256 * 4));
  require(cudaMalloc(&scales, 128256 * 4));
  require(cudaMalloc(&workspace, skinny_workspace_bytes(128256, 14336)));
  require(cudaMemset(workspace, 0, skinny_workspace_bytes(128256, 14336)));
  fill<<<2048, 256>>>(reinterpret_cast<uint32_t*>(pool), kPool / 4);
  fill<<<64, 256>>>(static_cast<uint32_t*>(x), kSkinnyRows * 14336 / 2);
  fill<<<64, 256>>>(reinterpret_cast<uint32_t*>(scales), 128256);
  require(cudaDeviceSynchronize());
  cudaStream_t stream;
  require(cudaStreamCreate(&stream));
  cudaEvent_t begin;
  cudaEvent_t end;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));

  // Median seconds of one replay of what `launches` captures.
  const auto time = [&](auto launches) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    launches();
    require(cudaStreamEndCapture(stream, &graph));
    require(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> times;
    for (int i = 0; i < 9; ++i) {
      float ms = 0;
      require(cudaEventRecord(begin, stream));
      require(cudaGraphLaunch(exec, stream));
      require(cudaEventRecord(end, stream));
      require(cudaEventSynchronize(end));
      require(cudaEventElapsedTime(&ms, begin, end));
      if (i >= 2) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    require(cudaGraphExecDestroy(exec));
    require(cudaGraphDestroy(graph));
    return times[times.size() / 2] * 1e-3;
  };
  const auto launch = [&](const Shape& shape, int rows, size_t& offset) {
    const size_t bytes = static_cast<size_t>(shape.n * shape.k) * weight_size;
    if (offset + bytes > kPool) offset = 0;
    SkinnyProduct p;
    p.weights = pool + offset;
    p.weight_type = type->scale == WeightScale::none ? DType::bf16 : DType::f8_e4m3;
    p.scale = type->scale == WeightScale::none ? nullptr : scales;
    p.scale_kind = type->scale;
    p.n = shape.n;
    p.k = shape.k;
    p.x = x;
    p.rows = rows;
    p.finish = shape.finish;
    p.y = y;
    p.workspace = workspace;
    require(skinny_product(stream, p));
    offset += bytes;
    return static_cast<double>(bytes);
  };

  std::printf("{\"weights\": \"%s\", \"products\": [\n", type->name);
  for (int rows : row_counts) {
    for (const Shape& shape : kShapes) {
      double bytes = 0;
      const int count = static_cast<int>(
          std::max<size_t>(4, kPool / (static_cast<size_t>(shape.n * shape.k) * weight_size)));
      const double seconds = time([&] {
        size_t offset = 0;
        bytes = 0;
        for (int i = 0; i < count; ++i) bytes += launch(shape, rows, offset);
      });
      std::printf(
          "  {\"rows\": %d, \"product\": \"%s\", \"n\": %lld, \"k\": %lld, \"us\": %.2f, \"gb_s\": %.0f},\n",
          rows, shape.name, static_cast<long long>(shape.n), static_cast<long long>(shape.k),
          seconds * 1e6 / count, bytes / seconds * 1e-9);
      std::fflush(stdout);
    }
    double bytes = 0;
    const double seconds = time([&] {
      size_t offset = 0;
      bytes = 0;
      for (int layer = 0; layer < 32; ++layer) {
        for (const Shape& shape : kShapes) {
          if (shape.a_step == 32) bytes += launch(shape, rows, offset);
        }
      }
      bytes += launch(kShapes[4], rows, offset);
    });
    std::printf("  {\"rows\": %d, \"product\": \"all of a step\", \"ms\": %.3f, \"gb_s\": %.0f}%s\n", rows,
                seconds * 1e3, bytes / seconds * 1e-9, rows == row_counts.back() ? "" : ",");
    std::fflush(stdout);
  }
  std::printf("]}\n");
  return 0;
}
