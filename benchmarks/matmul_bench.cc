// Products with weights of every type, as a step of decode (one row: how fast are the weights read?) and of
// prefill (256 rows: how fast are the multiplications?), beside the machine's rate of reading memory.
//
// BM_linear/q4_1/rows:1/threads:2: bytes_per_second is the weights' bytes, read from beyond the caches; items
// are multiply-adds.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/dtype.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "ops/cpu/cpu_ops.h"

namespace {

using kv8::DType;
using kv8::Shape;
using kv8::TensorView;

constexpr int64_t kCols = 2048;
constexpr int64_t kRows = 2048;
constexpr size_t kBeyondCaches = size_t{192} << 20;  // bytes of weights that a decode benchmark goes through

// Matrices [kRows, kCols] enough to fill kBeyondCaches, or one.
struct Weights {
  std::vector<std::byte> bytes;
  std::vector<std::unique_ptr<kv8::ops::Matrix>> matrices;
};

Weights make_weights(kv8::ops::Ops& ops, DType dtype, bool many) {
  const size_t matrix_bytes = kv8::row_bytes(dtype, kCols) * kRows;
  const size_t count = many ? kBeyondCaches / matrix_bytes + 1 : 1;
  Weights weights;
  weights.bytes.resize(matrix_bytes * count);
  // Small bytes: whatever field of a block they fall into, a finite number of moderate size.
  std::mt19937 random(1);
  for (std::byte& byte : weights.bytes) byte = static_cast<std::byte>(random() & 0x3B);
  for (size_t i = 0; i < count; ++i) {
    const kv8::ops::MatrixPart part = {.name = "weights",
                                       .data = {.dtype = dtype,
                                                .shape = Shape{kRows, kCols},
                                                .data = weights.bytes.data() + i * matrix_bytes,
                                                .bytes = matrix_bytes},
                                       .scale = {},
                                       .bias = {}};
    auto matrix = ops.load_matrix({&part, 1});
    if (!matrix) std::abort();
    weights.matrices.push_back(std::move(*matrix));
  }
  return weights;
}

void bench_linear(benchmark::State& state, DType dtype, int64_t rows, int threads) {
  const auto ops = kv8::ops::cpu::make_cpu_ops({.threads = threads});
  const Weights weights = make_weights(*ops, dtype, rows < 16);
  auto x = ops->allocate_activations(rows, kCols);
  auto out = ops->allocate_activations(rows, kRows);
  if (!x || !out) return state.SkipWithError("no memory");
  for (int64_t i = 0; i < rows * kCols; ++i) {
    reinterpret_cast<float*>(x->data)[i] = std::sin(static_cast<float>(i));
  }
  size_t next = 0;
  for (auto _ : state) {
    ops->linear(*weights.matrices[next], *x, *out);
    next = (next + 1) % weights.matrices.size();
  }
  const auto iterations = static_cast<int64_t>(state.iterations());
  state.SetBytesProcessed(iterations * static_cast<int64_t>(weights.matrices[0]->bytes()));
  state.SetItemsProcessed(iterations * rows * kRows * kCols);
}

// The ceiling of decode: all threads add up memory that no cache holds.
void bench_read(benchmark::State& state, int threads) {
  kv8::ThreadPool pool(threads);
  constexpr int64_t kPiece = int64_t{1} << 20;
  constexpr auto kPieces = static_cast<int64_t>(kBeyondCaches) / kPiece;
  std::vector<uint64_t> memory(kBeyondCaches / sizeof(uint64_t), 3);
  std::vector<uint64_t> sums(static_cast<size_t>(kPieces));
  for (auto _ : state) {
    pool.parallel_for(kPieces, [&](int64_t piece, int) {
      const uint64_t* from = memory.data() + piece * (kPiece / static_cast<int64_t>(sizeof(uint64_t)));
      uint64_t a = 0, b = 0, c = 0, d = 0;
      uint64_t e = 0, f = 0, g = 0, h = 0;
      for (size_t i = 0; i < static_cast<size_t>(kPiece) / sizeof(uint64_t); i += 8) {
        a += from[i];
        b += from[i + 1];
        c += from[i + 2];
        d += from[i + 3];
        e += from[i + 4];
        f += from[i + 5];
        g += from[i + 6];
        h += from[i + 7];
      }
      sums[static_cast<size_t>(piece)] = a + b + c + d + e + f + g + h;
    });
    benchmark::DoNotOptimize(sums.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(kBeyondCaches));
}

}  // namespace

int main(int argc, char** argv) {
  const int available = kv8::available_threads();
  std::vector<int> thread_counts = {1};
  if (available > 1) thread_counts.push_back(available);
  for (const int threads : thread_counts) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(("BM_read" + suffix).c_str(), [threads](benchmark::State& state) {
      bench_read(state, threads);
    })->UseRealTime();
    for (const int64_t rows : {1, 4, 256}) {
      for (const DType dtype :
           {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3, DType::q8_0, DType::q4_0, DType::q4_1,
            DType::q5_0, DType::q5_1, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k}) {
        const std::string name =
            "BM_linear/" + std::string(to_string(dtype)) + "/rows:" + std::to_string(rows) + suffix;
        benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          bench_linear(state, dtype, rows, threads);
        })->UseRealTime();
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
