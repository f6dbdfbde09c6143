// Attention on the CPU: decode time per cached token by cache format, and prefill throughput.
//   KV8_SIMD=avx2 kv8_attention_bench --benchmark_filter=decode
// The caches of decode are as large as a model's (30 layers), so that they come from memory as they do there.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "attention/cpu/paged_attention.h"
#include "numerics/e4m3.h"
#include "numerics/hopper_accumulator.h"
#include "numerics/simd.h"

namespace kv8::attention {
namespace {

using cpu::AttentionProblem;
using cpu::SequenceChunk;
using kv_cache::kPageTokens;
using kv_cache::KvFormat;

// SmolLM2-135M.
constexpr int kLayers = 30;
constexpr int kQHeads = 9;
constexpr int kKvHeads = 3;
constexpr int kHeadDim = 64;

struct Layers {
  Layers(KvFormat format, int64_t tokens, int layers)
      : pages((tokens + kPageTokens - 1) / kPageTokens), scales(kKvHeads, 1.0F) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(64) * kKvHeads * kHeadDim);
    for (float& number : numbers) number = normal(random);
    for (int64_t page = 0; page < pages; ++page) page_table.push_back(static_cast<int32_t>(page));
    views.resize(layers);
    storage.resize(2 * static_cast<size_t>(layers));
    for (int layer = 0; layer < layers; ++layer) {
      cpu::LayerCacheView& view = views[layer];
      view.format = format;
      view.kv_heads = kKvHeads;
      view.head_dim = kHeadDim;
      view.k_scale = view.v_scale = scales.data();
      for (auto* pool : {&storage[2 * layer], &storage[2 * layer + 1]})
        pool->resize(static_cast<size_t>(pages * view.page_bytes()));
      view.k = storage[2 * layer].data();
      view.v = storage[2 * layer + 1].data();
      for (int64_t token = 0; token < pages * kPageTokens; ++token) {
        const float* row = &numbers[static_cast<size_t>(token % 64) * kKvHeads * kHeadDim];
        cpu::write_token(view, static_cast<int32_t>(token / kPageTokens),
                         static_cast<int>(token % kPageTokens), row, row);
      }
    }
  }

  int64_t pages;
  std::vector<float> scales;
  std::vector<int32_t> page_table;
  std::vector<std::vector<std::byte>> storage;
  std::vector<cpu::LayerCacheView> views;
};

AttentionProblem describe(const cpu::LayerCacheView& view, const SequenceChunk& sequence,
                          const std::vector<float>& q, std::vector<float>& out) {
  AttentionProblem problem;
  problem.cache = view;
  problem.sequences = {&sequence, 1};
  problem.q = q.data();
  problem.out = out.data();
  problem.q_heads = kQHeads;
  problem.q_stride = problem.out_stride = kQHeads * kHeadDim;
  problem.softmax_scale = 0.125F;
  return problem;
}

std::vector<float> random_queries(int64_t rows) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<size_t>(rows) * kQHeads * kHeadDim);
  for (float& number : q) number = normal(random);
  return q;
}

// One token through all layers.
void BM_decode(benchmark::State& state, KvFormat format) {
  const int64_t tokens = state.range(0);
  ThreadPool pool(static_cast<int>(state.range(1)));
  Layers layers(format, tokens, kLayers);
  const std::vector<float> q = random_queries(1);
  std::vector<float> out(q.size());
  const SequenceChunk sequence{0, 1, tokens - 1, layers.page_table.data()};
  for (auto _ : state) {
    for (const auto& view : layers.views)
      (void)cpu::paged_attention(describe(view, sequence, q, out), Accumulate::f32, pool);
    benchmark::ClobberMemory();
  }
  const auto bytes = 2.0 * kLayers * kKvHeads * kHeadDim *
                     static_cast<double>(kv_cache::element_bytes(format)) * static_cast<double>(tokens);
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  // Of one token of context, all layers: the slope of decode time.
  state.counters["s/cached_token"] =
      benchmark::Counter(static_cast<double>(tokens),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// A chunk of 512 queries at the end of a context, one layer.
void BM_prefill(benchmark::State& state, KvFormat format) {
  const int64_t tokens = state.range(0);
  constexpr int64_t kChunk = 512;
  ThreadPool pool(static_cast<int>(state.range(1)));
  Layers layers(format, tokens, 1);
  const std::vector<float> q = random_queries(kChunk);
  std::vector<float> out(q.size());
  const SequenceChunk sequence{0, kChunk, tokens - kChunk, layers.page_table.data()};
  for (auto _ : state) {
    (void)cpu::paged_attention(describe(layers.views[0], sequence, q, out), Accumulate::f32, pool);
    benchmark::ClobberMemory();
  }
  const double pairs = static_cast<double>(kChunk) * (static_cast<double>(tokens) - (kChunk - 1) / 2.0);
  state.counters["GFLOP/s"] =
      benchmark::Counter(4e-9 * pairs * kQHeads * kHeadDim, benchmark::Counter::kIsIterationInvariantRate);
}

// The emulated modes: pairs of a query and a key, per second.
void BM_emulation(benchmark::State& state, Accumulate mode) {
  constexpr int64_t kTokens = 2048;
  constexpr int64_t kChunk = 64;
  ThreadPool pool(static_cast<int>(state.range(0)));
  Layers layers(KvFormat::fp8, kTokens, 1);
  const std::vector<float> q = random_queries(kChunk);
  std::vector<float> out(q.size());
  const SequenceChunk sequence{0, kChunk, kTokens - kChunk, layers.page_table.data()};
  for (auto _ : state) {
    (void)cpu::paged_attention(describe(layers.views[0], sequence, q, out), mode, pool);
    benchmark::ClobberMemory();
  }
  const double pairs = static_cast<double>(kChunk) * (static_cast<double>(kTokens) - (kChunk - 1) / 2.0);
  state.counters["pairs/s"] =
      benchmark::Counter(pairs * kQHeads, benchmark::Counter::kIsIterationInvariantRate);
}

// The emulated tensor core by itself: steps of k = 32 for one output, per second.
void BM_hopper_step(benchmark::State& state) {
  constexpr int kDepth = 128;
  constexpr int kColumns = 64;
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0.0F, 4.0F);
  std::vector<uint8_t> row_codes(kDepth);
  std::vector<uint8_t> codes(static_cast<size_t>(kDepth) * kColumns);
  for (uint8_t& code : row_codes) code = numerics::float_to_e4m3(normal(random));
  for (uint8_t& code : codes) code = numerics::float_to_e4m3(normal(random));
  numerics::HopperRow row;
  row.assign(row_codes.data(), kDepth);
  numerics::HopperMatrix matrix;
  matrix.assign(codes.data(), kDepth, kColumns, kColumns);
  std::vector<float> sums(matrix.padded_columns(), 0.0F);
  for (auto _ : state) {
    for (int k = 0; k < kDepth; k += numerics::kHopperStep) matrix.step(row, k, sums.data());
    benchmark::ClobberMemory();
  }
  state.counters["steps/s"] = benchmark::Counter(kDepth / numerics::kHopperStep * kColumns,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void decode_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "threads"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int64_t threads : {1, 2}) {
    for (const int64_t tokens : {1024, 8192}) benchmark->Args({tokens, threads});
  }
}
void prefill_sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens", "threads"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int64_t threads : {1, 2}) {
    for (const int64_t tokens : {512, 2048, 8192}) benchmark->Args({tokens, threads});
  }
}

BENCHMARK_CAPTURE(BM_decode, f32, KvFormat::f32)->Apply(decode_sizes);
BENCHMARK_CAPTURE(BM_decode, bf16, KvFormat::bf16)->Apply(decode_sizes);
BENCHMARK_CAPTURE(BM_decode, fp8, KvFormat::fp8)->Apply(decode_sizes);
BENCHMARK_CAPTURE(BM_prefill, bf16, KvFormat::bf16)->Apply(prefill_sizes);
BENCHMARK_CAPTURE(BM_prefill, fp8, KvFormat::fp8)->Apply(prefill_sizes);
BENCHMARK(BM_hopper_step);
BENCHMARK_CAPTURE(BM_emulation, tile, Accumulate::tile)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(BM_emulation, two_level, Accumulate::two_level)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(BM_emulation, single, Accumulate::single)->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace kv8::attention

int main(int argc, char** argv) {
  if (const auto status = kv8::numerics::limit_simd_by_environment(); !status) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 2;
  }
  benchmark::AddCustomContext("simd", kv8::numerics::simd_name());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
