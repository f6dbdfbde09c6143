// Times the attention kernels next to the ceilings of the same run: the memory's read rate at the same number
// of bytes, and the tensor core's FP8 rate. Prints a table; --json FILE writes the same as JSON. An argument
// without dashes runs the groups whose name contains it: ceilings, decode, ragged, window, prefill, append.
//
// Inputs are random. Small caches are copied until they exceed the L2 and used in turn, so that what is timed
// is a read of device memory, not of the L2.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "attention/cuda/ptx/wgmma.cuh"
#include "kv8/attention.h"

namespace {

using namespace kv8::attention::cuda;

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
void require(const Status& status) {
  if (status) return;
  std::printf("%s\n", status.message);
  std::exit(1);
}

template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    require(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)), "cudaMalloc");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    require(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }
  T* get() const { return data_; }
  size_t count() const { return count_; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// ---- Measuring

struct Result {
  std::string group;
  std::string name;
  double microseconds;
  double rate;  // GB/s or TFLOP/s
  const char* unit;
  double ceiling;  // in the same unit; 0: none
};
std::vector<Result> results;

void report(const Result& r) {
  results.push_back(r);
  std::printf("%-9s %-44s %10.1f us %8.0f %-7s", r.group.c_str(), r.name.c_str(), r.microseconds, r.rate,
              r.unit);
  if (r.ceiling > 0) std::printf("  %5.1f%% of %.0f", 100 * r.rate / r.ceiling, r.ceiling);
  std::printf("\n");
  std::fflush(stdout);
}

// Median over batches of launches back to back, of the mean time of one, in microseconds.
double time_launches(const std::function<void(int)>& launch, double expected_us) {
  cudaEvent_t begin;
  cudaEvent_t end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  const int inner = std::clamp(static_cast<int>(3000 / std::max(expected_us, 1.0)), 1, 100);
  const int batches = expected_us > 20000 ? 3 : 9;
  int n = 0;
  for (int i = 0; i < (expected_us > 20000 ? 1 : 3); ++i) launch(n++);
  require(cudaDeviceSynchronize(), "warm-up");
  std::vector<double> times;
  for (int batch = 0; batch < batches; ++batch) {
    cudaEventRecord(begin);
    for (int i = 0; i < inner; ++i) launch(n++);
    cudaEventRecord(end);
    require(cudaEventSynchronize(end), "timing");
    float ms;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms * 1e3 / inner);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// ---- Ceilings

__global__ void __launch_bounds__(512) read_kernel(const uint4* data, size_t count, uint32_t* sink) {
  uint32_t x = 0;
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = __ldcs(data + i);
    const uint4 b = __ldcs(data + i + stride);
    const uint4 c = __ldcs(data + i + 2 * stride);
    const uint4 d = __ldcs(data + i + 3 * stride);
    x ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += stride) x ^= data[i].x;
  if (x == 0x12345678) *sink = x;
}

// Roughly N(0, 1), of an index.
__device__ float normal(uint64_t index, uint32_t seed) {
  uint64_t x = (index + 1) * 0x9E3779B97F4A7C15ULL + seed;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 32;
  const float u = (static_cast<float>(x & 0xFFFFFF) + 1.0F) / 16777217.0F;
  const float v = static_cast<float>(x >> 24 & 0xFFFFFF) / 16777216.0F;
  return sqrtf(-2.0F * logf(u)) * cospif(2.0F * v);
}

__global__ void fill_bf16(uint16_t* data, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    data[i] = __bfloat16_as_ushort(__float2bfloat16_rn(normal(i, seed)));
  }
}

__global__ void fill_e4m3(uint8_t* data, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    const float z = normal(i, seed);
    uint16_t packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(0.0F), "f"(z));
    data[i] = static_cast<uint8_t>(packed);
  }
}

// FP8 products alone: 64 x 128 x 128 a round and warpgroup, accumulators left in the tensor core.
__global__ void __launch_bounds__(384, 1) product_kernel(float* sink, int rounds) {
  namespace ptx = kv8::attention::cuda::ptx;
  extern __shared__ __align__(1024) uint8_t shared[];
  for (int i = threadIdx.x; i < 49152; i += blockDim.x)
    shared[i] = static_cast<uint8_t>((i * 2654435761U) >> 13) & 0xBF;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  using Operand = ptx::Descriptor<128>;
  float d[64];
  for (float& x : d) x = 0.0F;
  for (int i = 0; i < rounds; ++i) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      ptx::WgmmaE4m3<128>::add_shared(d,
                                      Operand::of(Operand::low(base + threadIdx.x / 128 * 8192 + step * 32)),
                                      Operand::of(Operand::low(base + 24576 + step * 32)));
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::hold(d);
  }
  float sum = 0.0F;
  for (float x : d) sum += x;
  if (sum == 0.12345F) *sink = sum;
}

// The rate of reading that many bytes, from copies beyond the L2 in turn; measured once for each size.
double read_ceiling(size_t bytes) {
  static std::map<size_t, double> known;
  size_t rounded = 1 << 20;
  while (rounded * 5 / 4 < bytes) rounded = rounded * 5 / 4;
  const auto found = known.find(rounded);
  if (found != known.end()) return found->second;
  const size_t copies = std::max<size_t>(1, (size_t{400} << 20) / bytes + 1);
  Buffer<uint8_t> data(bytes * copies);
  Buffer<uint32_t> sink(1);
  fill_e4m3<<<4096, 256>>>(data.get(), data.count(), 1);
  double best = 0;
  for (int blocks : {132 * 2, 132 * 4}) {
    const double us = time_launches(
        [&](int n) {
          read_kernel<<<blocks, 512>>>(reinterpret_cast<const uint4*>(data.get() + n % copies * bytes),
                                       bytes / 16, sink.get());
        },
        bytes / 4e6);
    best = std::max(best, bytes / us / 1e3);
  }
  known[rounded] = best;
  return best;
}

double product_ceiling() {
  static double known = 0;
  if (known > 0) return known;
  Buffer<float> sink(1);
  require(cudaFuncSetAttribute(product_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 49152),
          "attribute");
  const int rounds = 20000;
  const double us =
      time_launches([&](int) { product_kernel<<<132, 384, 49152>>>(sink.get(), rounds); }, 10000);
  known = 132.0 * 3 * rounds * 2 * 64 * 128 * 128 / us / 1e6;
  return known;
}

// ---- Attention

struct Heads {
  int head_dim;
  int q;
  int kv;
  CacheFormat format = CacheFormat::fp8;

  Heads in(CacheFormat other) const { return {head_dim, q, kv, other}; }
};

// Numbers as a cache of that format stores them, roughly N(0, 1).
void fill(CacheFormat format, const Buffer<uint8_t>& bytes, uint32_t seed) {
  if (format == CacheFormat::fp8) {
    fill_e4m3<<<4096, 256>>>(bytes.get(), bytes.count(), seed);
  } else {
    fill_bf16<<<4096, 256>>>(reinterpret_cast<uint16_t*>(bytes.get()), bytes.count() / 2, seed);
  }
}

// A layer with sequences of the given context lengths, `rows` of each of them new.
class Layer {
 public:
  Layer(const Heads& heads, const std::vector<int>& lengths, const std::vector<int>& rows, int64_t window,
        int max_decode_rows = 1)
      : heads_(heads) {
    const int64_t page_bytes = heads.kv * head_bytes(heads.format, heads.head_dim);
    std::vector<Sequence> sequences;
    int pages = 0;
    int most = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      sequences.push_back({rows_, rows[i], lengths[i] - rows[i], static_cast<int32_t>(i)});
      rows_ += rows[i];
      pages += (lengths[i] + kPageTokens - 1) / kPageTokens;
      most = std::max(most, (lengths[i] + kPageTokens - 1) / kPageTokens);
      cache_bytes_ += static_cast<double>(window > 0 ? std::min<int64_t>(window + 128, lengths[i])
                                                     : (lengths[i] + 127) / 128 * 128) *
                      2 * heads.kv * heads.head_dim * element_bytes(heads.format);
    }
    copies_ = static_cast<int>(std::clamp<int64_t>((int64_t{400} << 20) / (pages * page_bytes) + 1, 1, 24));
    pool_ = std::make_unique<Buffer<uint8_t>>(static_cast<size_t>(pages) * copies_ * page_bytes);
    fill(heads.format, *pool_, 7);
    std::mt19937 random(5);
    for (int copy = 0; copy < copies_; ++copy) {
      std::vector<int32_t> order(pages);
      for (int i = 0; i < pages; ++i) order[i] = copy * pages + i;
      std::shuffle(order.begin(), order.end(), random);
      std::vector<int32_t> table(lengths.size() * most, 0);
      int next = 0;
      for (size_t i = 0; i < lengths.size(); ++i) {
        for (int page = 0; page < (lengths[i] + kPageTokens - 1) / kPageTokens; ++page)
          table[i * most + page] = order[next++];
      }
      tables_.push_back(std::make_unique<Buffer<int32_t>>(table));
    }
    sequences_ = std::make_unique<Buffer<Sequence>>(sequences);
    const size_t q_count = static_cast<size_t>(rows_) * heads.q;
    q_ = std::make_unique<Buffer<uint8_t>>(q_count * heads.head_dim * element_bytes(heads.format));
    fill(heads.format, *q_, 9);
    q_scale_ = std::make_unique<Buffer<float>>(std::vector<float>(q_count, 1.0F));
    out_ = std::make_unique<Buffer<uint16_t>>(q_count * heads.head_dim);

    p_.shape.batch = {sequences_->get(), static_cast<int>(lengths.size()), rows_, tables_[0]->get(), most};
    p_.shape.format = heads.format;
    p_.shape.q_heads = heads.q;
    p_.shape.kv_heads = heads.kv;
    p_.shape.head_dim = heads.head_dim;
    p_.shape.window = window;
    p_.shape.max_decode_rows = max_decode_rows;
    plan_ = std::make_unique<Buffer<uint8_t>>(plan_bytes(p_.shape));
    workspace_ = std::make_unique<Buffer<uint8_t>>(workspace_bytes(p_.shape));
    require(cudaMemset(workspace_->get(), 0, workspace_->count()), "memset");
    p_.plan = plan_->get();
    p_.workspace = workspace_->get();
    p_.cache = {heads.format, pool_->get(),   page_bytes, page_bytes / heads.kv,
                heads.kv,     heads.head_dim, nullptr,    nullptr};
    p_.q = q_->get();
    p_.q_scale = q_scale_->get();
    p_.out = out_->get();
    p_.softmax_scale = 1.0F / std::sqrt(static_cast<float>(heads.head_dim));
    require(make_plan(p_.shape, plan_->get(), nullptr));
    require(cudaDeviceSynchronize(), "setup");
  }

  AttentionParams params(int n) const {
    AttentionParams p = p_;
    p.shape.batch.page_tables = tables_[n % copies_]->get();
    return p;
  }
  void plan() { require(make_plan(p_.shape, plan_->get(), nullptr)); }
  double cache_bytes() const { return cache_bytes_; }

 private:
  Heads heads_;
  int rows_ = 0;
  int copies_;
  double cache_bytes_ = 0;
  std::unique_ptr<Buffer<uint8_t>> pool_;
  std::vector<std::unique_ptr<Buffer<int32_t>>> tables_;
  std::unique_ptr<Buffer<Sequence>> sequences_;
  std::unique_ptr<Buffer<uint8_t>> q_;
  std::unique_ptr<Buffer<float>> q_scale_;
  std::unique_ptr<Buffer<uint16_t>> out_;
  std::unique_ptr<Buffer<uint8_t>> plan_;
  std::unique_ptr<Buffer<uint8_t>> workspace_;
  AttentionParams p_;
};

std::vector<Heads> in_both_formats(const std::vector<Heads>& sizes) {
  std::vector<Heads> all;
  for (const CacheFormat format : {CacheFormat::fp8, CacheFormat::bf16}) {
    for (const Heads& heads : sizes) all.push_back(heads.in(format));
  }
  return all;
}

std::string label(const Heads& h, const char* what) {
  char text[96];
  std::snprintf(text, sizeof text, "%s d%d %d/%d %s", h.format == CacheFormat::fp8 ? "fp8" : "bf16",
                h.head_dim, h.q, h.kv, what);
  return text;
}

void time_decode(const char* group, const Heads& heads, const std::vector<int>& lengths, int64_t window,
                 const std::string& what, Fp8Accumulate mode = Fp8Accumulate::tile, int rows = 1) {
  Layer layer(heads, lengths, std::vector<int>(lengths.size(), rows), window, rows);
  const double us = time_launches(
      [&](int n) {
        AttentionParams p = layer.params(n);
        p.accumulate = mode;
        require(decode(p, nullptr));
      },
      layer.cache_bytes() / 4e6 + 5);
  report({group, label(heads, what.c_str()), us, layer.cache_bytes() / us / 1e3, "GB/s",
          window > 0 ? 0 : read_ceiling(static_cast<size_t>(layer.cache_bytes()))});
}

void decode_group() {
  const std::vector<Heads> sizes = {{128, 32, 8}, {64, 64, 8}, {256, 24, 4}, {256, 8, 1}};
  for (const Heads& heads : in_both_formats(sizes)) {
    struct Case {
      int batch;
      int length;
    };
    for (const Case& c : {Case{1, 1024},
                          {1, 8192},
                          {1, 32768},
                          {1, 131072},
                          {8, 8192},
                          {8, 32768},
                          {8, 131072},
                          {64, 8192},
                          {64, 32768}}) {
      if (heads.kv == 1 && c.batch == 64) continue;
      char what[32];
      std::snprintf(what, sizeof what, "%d x %d", c.batch, c.length);
      time_decode("decode", heads, std::vector<int>(c.batch, c.length), 0, what);
    }
  }
  time_decode("decode", sizes[0], std::vector<int>(8, 131072), 0, "8 x 131072 two-level",
              Fp8Accumulate::two_level);
  time_decode("decode", sizes[0], std::vector<int>(8, 131072), 0, "8 x 131072 single", Fp8Accumulate::single);
  for (const Heads& heads : in_both_formats({sizes[0]})) {
    for (const int rows : {4, 8}) {
      char what[32];
      std::snprintf(what, sizeof what, "8 x 131072, %d rows", rows);
      time_decode("decode", heads, std::vector<int>(8, 131072), 0, what, Fp8Accumulate::tile, rows);
    }
  }
  Layer layer(sizes[0], std::vector<int>(64, 8192), std::vector<int>(64, 1), 0);
  report({"decode", "the plan of 64 sequences, once a step", time_launches([&](int) { layer.plan(); }, 5), 0,
          "", 0});
}

void ragged_group() {
  for (const Heads& heads : in_both_formats({{128, 32, 8}, {64, 64, 8}, {256, 24, 4}})) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform(std::log(1024.0), std::log(131072.0));
    std::vector<int> lengths(32);
    int64_t total = 0;
    for (int& length : lengths) total += length = static_cast<int>(std::exp(uniform(random)));
    time_decode("ragged", heads, lengths, 0, "32 x 1K to 128K");
    time_decode("ragged", heads, std::vector<int>(32, static_cast<int>(total / 32)), 0,
                "32 of the mean length");
  }
}

void window_group() {
  for (const Heads& heads : in_both_formats({{128, 32, 8}})) {
    for (int window : {128, 512}) {
      for (int length : {4096, 131072}) {
        char what[48];
        std::snprintf(what, sizeof what, "32 x %d, window %d", length, window);
        time_decode("window", heads, std::vector<int>(32, length), window, what);
      }
    }
  }
}

void time_prefill(const Heads& heads, const std::vector<int>& lengths, const std::vector<int>& rows,
                  const std::string& what) {
  Layer layer(heads, lengths, rows, 0);
  double pairs = 0;
  for (size_t i = 0; i < lengths.size(); ++i) pairs += rows[i] * (lengths[i] - rows[i] + 0.5 * rows[i]);
  const double flop = 4.0 * pairs * heads.q * heads.head_dim;
  const double us = time_launches([&](int n) { require(prefill(layer.params(n), nullptr)); }, flop / 9e8);
  report({"prefill", label(heads, what.c_str()), us, flop / us / 1e6, "TFLOP/s", product_ceiling()});
}

void prefill_group() {
  for (const Heads& heads : {Heads{128, 32, 8}, {64, 64, 8}, {256, 8, 8}, {256, 24, 4}}) {
    for (int length : {4096, 16384, 65536, 131072}) {
      if (length == 131072 && heads.head_dim == 256) continue;
      char what[32];
      std::snprintf(what, sizeof what, "1 x %d", length);
      time_prefill(heads, {length}, {length}, what);
    }
    time_prefill(heads, {131072}, {8192}, "8192 at the end of 131072");
    std::mt19937 random(3);
    std::uniform_real_distribution<double> uniform(std::log(128.0), std::log(16384.0));
    std::vector<int> lengths(24);
    for (int& length : lengths) length = static_cast<int>(std::exp(uniform(random)));
    time_prefill(heads, lengths, lengths, "24 of 128 to 16K, ragged");
  }
}

void append_group() {
  for (const Heads& heads : in_both_formats({{128, 32, 8}, {64, 64, 8}, {256, 24, 4}})) {
    for (int rows : {1, 8, 64, 8192}) {
      const std::vector<int> lengths = rows == 8192 ? std::vector<int>{8192} : std::vector<int>(rows, 1000);
      Layer layer(heads, lengths, rows == 8192 ? std::vector<int>{8192} : std::vector<int>(rows, 1), 0);
      const int width = (heads.q + 2 * heads.kv) * heads.head_dim;
      Buffer<uint16_t> qkv(static_cast<size_t>(rows) * width);
      require(cudaMemset(qkv.get(), 0x3C, qkv.count() * 2), "memset");
      const int element = element_bytes(heads.format);
      Buffer<uint8_t> q(static_cast<size_t>(rows) * heads.q * heads.head_dim * element);
      Buffer<float> q_scale(static_cast<size_t>(rows) * heads.q);
      Buffer<float> frequencies(std::vector<float>(heads.head_dim / 2, 0.01F));
      Buffer<float> norm(std::vector<float>(heads.head_dim, 1.25F));
      const double us = time_launches(
          [&](int n) {
            const AttentionParams attention = layer.params(n);
            AppendParams p;
            p.batch = attention.shape.batch;
            p.cache = attention.cache;
            p.q_heads = heads.q;
            p.qkv = qkv.get();
            p.qkv_stride = width;
            p.rope = RopeKind::half_split;
            p.rotary_dim = heads.head_dim;
            p.inverse_frequencies = frequencies.get();
            p.q_norm = p.k_norm = norm.get();
            p.norm_epsilon = 1e-6F;
            p.q = q.get();
            p.q_scale = q_scale.get();
            require(append(p, nullptr));
          },
          20);
      char what[32];
      std::snprintf(what, sizeof what, "%d rows", rows);
      const double bytes = (2.0 + element) * rows * width;
      report({"append", label(heads, what), us, bytes / us / 1e3, "GB/s",
              rows == 8192 ? read_ceiling(static_cast<size_t>(bytes)) : 0});
    }
  }
}

void ceilings_group() {
  for (size_t megabytes : {16, 64, 256, 1024, 8192}) {
    const size_t bytes = megabytes << 20;
    const double rate = read_ceiling(bytes);
    report(
        {"ceilings", "read of " + std::to_string(megabytes) + " MiB", bytes / rate / 1e3, rate, "GB/s", 0});
  }
  report({"ceilings", "FP8 products, 3 warpgroups", 0, product_ceiling(), "TFLOP/s", 0});
}

void write_json(const char* path) {
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  FILE* file = std::fopen(path, "w");
  if (file == nullptr) {
    std::printf("cannot write %s\n", path);
    std::exit(1);
  }
  std::fprintf(file,
               "{\n  \"device\": \"%s\",\n  \"multiprocessors\": %d,\n  \"driver\": %d,\n  \"runtime\": "
               "%d,\n  \"results\": [\n",
               properties.name, properties.multiProcessorCount, driver, runtime);
  for (size_t i = 0; i < results.size(); ++i) {
    const Result& r = results[i];
    std::fprintf(file,
                 "    {\"group\": \"%s\", \"name\": \"%s\", \"us\": %.2f, \"rate\": %.1f, \"unit\": \"%s\", "
                 "\"ceiling\": %.1f}%s\n",
                 r.group.c_str(), r.name.c_str(), r.microseconds, r.rate, r.unit, r.ceiling,
                 i + 1 < results.size() ? "," : "");
  }
  std::fprintf(file, "  ]\n}\n");
  std::fclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> wanted;
  const char* json = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      wanted.emplace_back(argv[i]);
    }
  }
  struct Group {
    const char* name;
    void (*run)();
  };
  for (const Group& group : {Group{"ceilings", ceilings_group},
                             {"decode", decode_group},
                             {"ragged", ragged_group},
                             {"window", window_group},
                             {"prefill", prefill_group},
                             {"append", append_group}}) {
    const bool run = wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](const std::string& w) {
                       return std::string(group.name).find(w) != std::string::npos;
                     });
    if (run) group.run();
  }
  if (json != nullptr) write_json(json);
}
