#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "attention/cuda/page_layout.h"
#include "support.h"

namespace kv8::attention::cuda::test {

int failures = 0;

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

uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits += 0x7FFF + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

float from_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

double from_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  double x = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  if ((bits & 0x7F) == 0x7F) x = std::nan("");
  return (bits & 0x80) != 0 ? -x : x;
}

uint8_t to_e4m3(double x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const double magnitude = std::fabs(x);
  if (std::isnan(x)) return 0x7F;
  if (magnitude >= 448.0) return sign | 0x7E;
  const int exponent = std::max(magnitude > 0 ? std::ilogb(magnitude) : -100, -6);
  const auto steps =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // 8 to 16, or subnormal
  // Steps carry into the exponent by themselves.
  return sign | static_cast<uint8_t>((exponent + 6) * 8 + steps);
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    size += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / size);
}

namespace {

__device__ float normal(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ULL + index * 0xD1342543DE82EF95ULL;
  x ^= x >> 32;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 29;
  x *= 0x94D049BB133111EBULL;
  x ^= x >> 32;
  const float u = (static_cast<float>(x & 0xFFFFFF) + 1.0F) / 16777217.0F;
  const float v = static_cast<float>(x >> 24 & 0xFFFFFF) / 16777216.0F;
  return sqrtf(-2.0F * logf(u)) * cospif(2.0F * v);
}

// float bits rounded to bf16, on the device.
__device__ uint16_t device_bf16(float x) {
  uint32_t bits = __float_as_uint(x);
  bits += 0x7FFF + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

__global__ void fill_tokens(uint16_t* tokens, size_t count, int width, int first_value, float v_mean,
                            uint64_t seed) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    tokens[i] = device_bf16(normal(seed, i) + (static_cast<int>(i % width) >= first_value ? v_mean : 0.0F));
  }
}

__global__ void set_values(uint16_t* tokens, size_t count, int width, int first_value, float value) {
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<size_t>(gridDim.x) * blockDim.x) {
    if (static_cast<int>(i % width) >= first_value) tokens[i] = device_bf16(value);
  }
}

__device__ double device_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  const double x =
      exponent == 0 ? ldexp(static_cast<double>(mantissa), -9) : ldexp(8.0 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -x : x;
}

__device__ double round_e4m3(double x) {  // of 0 <= x <= 448
  if (x <= 0) return 0;
  const int exponent = max(ilogb(x), -6);
  return ldexp(rint(ldexp(x, 3 - exponent)), exponent - 3);
}

// One (row, query head) to look at.
struct Sample {
  int64_t query;  // index into q (times head_dim) and q_scale
  int sequence;   // of page_tables
  int head;       // KV head
  int query_head;
  int first;  // keys [first, last]
  int last;
};

struct ReferenceParams {
  CacheFormat format;
  const Sample* samples;
  const uint8_t* pool;
  int64_t page_stride;
  int64_t head_stride;
  const int32_t* page_tables;
  size_t table_stride;
  const uint8_t* q;
  const float* q_scale;
  const float* k_scale;
  const float* v_scale;
  const float* sinks;
  double softmax_scale;
  double soft_cap;
  int head_dim;
  double* scores;  // [samples][stride], of key - first
  size_t stride;
  double* exact;  // [samples][head_dim]
  double* quantised;
};

// The number at a byte offset.
__device__ double number_at(CacheFormat format, const uint8_t* bytes, int64_t at) {
  if (format == CacheFormat::fp8) return device_e4m3(bytes[at]);
  const auto bits = static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(bytes + at));
  return __uint_as_float(bits << 16);
}

__device__ const uint8_t* head_page(const ReferenceParams& p, const Sample& s, int key) {
  return p.pool + p.page_tables[s.sequence * p.table_stride + key / kPageTokens] * p.page_stride +
         s.head * p.head_stride;
}

__global__ void reference_scores(ReferenceParams p) {
  const Sample s = p.samples[blockIdx.y];
  const int key = s.first + blockIdx.x * blockDim.x + threadIdx.x;
  if (key > s.last) return;
  const uint8_t* page = head_page(p, s, key);
  double sum = 0;
  for (int dim = 0; dim < p.head_dim; ++dim) {
    sum += number_at(p.format, p.q, (s.query * p.head_dim + dim) * (p.format == CacheFormat::fp8 ? 1 : 2)) *
           number_at(p.format, page, key_offset(p.format, p.head_dim, key % kPageTokens, dim));
  }
  // The product of the scales as the kernels form it is float32; the difference is 1e-7.
  double score = sum * (p.q_scale != nullptr ? p.q_scale[s.query] : 1.0F) *
                 (p.k_scale != nullptr ? p.k_scale[s.head] : 1.0F) * p.softmax_scale;
  if (p.soft_cap > 0) score = p.soft_cap * tanh(score / p.soft_cap);
  p.scores[blockIdx.y * p.stride + key - s.first] = score;
}

// A block for each sample and 8 dims: 32 keys side by side.
__global__ void __launch_bounds__(256) reference_output(ReferenceParams p) {
  __shared__ double shared[3][256];
  const Sample s = p.samples[blockIdx.x];
  const double* scores = p.scores + blockIdx.x * p.stride;
  const int keys = s.last - s.first + 1;
  double largest = -1e300;
  for (int i = threadIdx.x; i < keys; i += 256) largest = fmax(largest, scores[i]);
  shared[0][threadIdx.x] = largest;
  __syncthreads();
  for (int i = 0; i < 256; ++i) largest = fmax(largest, shared[0][i]);
  __syncthreads();

  const int dim = blockIdx.y * 8 + threadIdx.x % 8;
  const int lane = threadIdx.x / 8;
  double sums[4] = {0, 0, 0, 0};  // exact: output, weight; quantised: the same
  for (int tile = s.first / kPageTokens; tile <= s.last / kPageTokens; ++tile) {
    const int begin = max(tile * kPageTokens, s.first) - s.first;
    const int end = min((tile + 1) * kPageTokens - 1, s.last) - s.first;
    double top = -1e300;
    for (int i = begin; i <= end; ++i) top = fmax(top, scores[i]);
    for (int i = begin + lane; i <= end; i += 32) {
      const uint8_t* page = head_page(p, s, s.first + i);
      const double v =
          number_at(p.format, page, value_offset(p.format, p.head_dim, (s.first + i) % kPageTokens, dim));
      const double weight = exp(scores[i] - largest);
      const double rounded = p.format == CacheFormat::fp8
                                 ? round_e4m3(exp(scores[i] - top) * 256) / 256 * exp(top - largest)
                                 : weight;
      sums[0] += weight * v;
      sums[1] += weight;
      sums[2] += rounded * v;
      sums[3] += rounded;
    }
  }
  const double sink = p.sinks != nullptr ? exp(p.sinks[s.query_head] - largest) : 0;
  double results[4];
  for (int k = 0; k < 4; ++k) {
    __syncthreads();
    shared[0][threadIdx.x] = sums[k];
    __syncthreads();
    results[k] = 0;
    for (int i = threadIdx.x % 8; i < 256; i += 8) results[k] += shared[0][i];
  }
  if (threadIdx.x < 8) {
    const double scale = p.v_scale != nullptr ? p.v_scale[s.head] : 1.0F;
    p.exact[static_cast<size_t>(blockIdx.x) * p.head_dim + dim] = scale * results[0] / (results[1] + sink);
    p.quantised[static_cast<size_t>(blockIdx.x) * p.head_dim + dim] =
        scale * results[2] / (results[3] + sink);
  }
}

}  // namespace

World::World(const Shape& shape, std::vector<int> lengths, uint64_t seed)
    : shape_(shape), lengths_(std::move(lengths)) {
  head_stride_ = head_bytes(shape.format, shape.head_dim) + shape.padding;
  page_stride_ = head_stride_ * shape.kv_heads + shape.padding;
  std::mt19937_64 random(seed);

  int pages = 0;
  for (int length : lengths_) {
    tables_.emplace_back((length + kPageTokens - 1) / kPageTokens + 1);
    for (int32_t& page : tables_.back()) page = pages++;
    table_stride_ = std::max(table_stride_, tables_.back().size());
  }
  std::vector<int32_t> order(pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (auto& table : tables_) {
    for (int32_t& page : table) page = order[page];
  }
  std::vector<int32_t> flat(table_stride_ * tables_.size(), -1);
  for (size_t i = 0; i < tables_.size(); ++i)
    std::copy(tables_[i].begin(), tables_[i].end(), flat.begin() + i * table_stride_);
  page_tables_ = Buffer<int32_t>(flat);
  pool_ = Buffer<uint8_t>(static_cast<size_t>(pages) * page_stride_);
  pool_.fill(shape.poison);

  const size_t count =
      static_cast<size_t>(std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0})) * width();
  tokens_ = Buffer<uint16_t>(count);
  fill_tokens<<<2048, 256>>>(tokens_.get(), count, width(), (shape.q_heads + shape.kv_heads) * shape.head_dim,
                             shape.v_mean, seed);
  require(cudaGetLastError(), "fill_tokens");

  std::uniform_real_distribution<float> uniform(0.5F, 2.0F);
  std::vector<float> k(shape.kv_heads);
  std::vector<float> v(shape.kv_heads);
  std::vector<float> sinks(shape.q_heads);
  for (float& x : k) x = 0.03F * uniform(random);
  for (float& x : v) x = 0.02F * uniform(random);
  for (float& x : sinks) x = uniform(random) + 1.0F;
  k_scale_ = Buffer<float>(k);
  v_scale_ = Buffer<float>(v);
  sinks_ = Buffer<float>(sinks);
  scaled_ = shape.scales && shape.format == CacheFormat::fp8;
}

int World::tokens_before(int sequence) const {
  return std::accumulate(lengths_.begin(), lengths_.begin() + sequence, 0);
}

void World::set_token(int sequence, int position, int column, const std::vector<float>& values) {
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), to_bf16);
  const size_t at = (static_cast<size_t>(tokens_before(sequence)) + position) * width() + column;
  require(cudaMemcpy(tokens_.get() + at, bits.data(), bits.size() * 2, cudaMemcpyHostToDevice), "set_token");
}

void World::set_all_values(float value) {
  set_values<<<2048, 256>>>(tokens_.get(), tokens_.count(), width(),
                            (shape_.q_heads + shape_.kv_heads) * shape_.head_dim, value);
  require(cudaGetLastError(), "set_values");
}

void World::set_scale(float k, float v) {
  k_scale_.upload(std::vector<float>(shape_.kv_heads, k));
  v_scale_.upload(std::vector<float>(shape_.kv_heads, v));
  scaled_ = true;
}

Cache World::cache() const {
  Cache cache;
  cache.format = shape_.format;
  cache.pool = pool_.get();
  cache.page_stride = page_stride_;
  cache.head_stride = head_stride_;
  cache.kv_heads = shape_.kv_heads;
  cache.head_dim = shape_.head_dim;
  cache.k_scale = scaled_ ? k_scale_.get() : nullptr;
  cache.v_scale = scaled_ ? v_scale_.get() : nullptr;
  return cache;
}

void World::step(const std::vector<Chunk>& chunks, bool attend) {
  host_sequences_.clear();
  rows_ = 0;
  attend_ = attend;
  for (const Chunk& chunk : chunks) {
    host_sequences_.push_back({rows_, chunk.rows, chunk.first, chunk.sequence});
    rows_ += chunk.rows;
  }
  sequences_ = Buffer<Sequence>(host_sequences_);
  qkv_ = Buffer<uint16_t>(static_cast<size_t>(rows_) * width());
  for (size_t i = 0; i < chunks.size(); ++i) {
    const size_t from = (static_cast<size_t>(tokens_before(chunks[i].sequence)) + chunks[i].first) * width();
    require(cudaMemcpy(qkv_.get() + static_cast<size_t>(host_sequences_[i].row_begin) * width(),
                       tokens_.get() + from, static_cast<size_t>(chunks[i].rows) * width() * 2,
                       cudaMemcpyDeviceToDevice),
            "gather");
  }
  const size_t heads = static_cast<size_t>(rows_) * shape_.q_heads;
  q_ = Buffer<uint8_t>(heads * shape_.head_dim * element_bytes(shape_.format));
  q_scale_ = Buffer<float>(heads);
  out_ = Buffer<uint8_t>(heads * shape_.head_dim * (shape_.out_type == OutputType::f32 ? 4 : 2));
  q_.fill(0xFF);
  q_scale_.fill(0xFF);
  out_.fill(0xFF);

  PlanParams plan;
  plan.batch = {sequences_.get(), static_cast<int>(host_sequences_.size()), rows_, page_tables_.get(),
                static_cast<int64_t>(table_stride_)};
  plan.format = shape_.format;
  plan.q_heads = shape_.q_heads;
  plan.kv_heads = shape_.kv_heads;
  plan.head_dim = shape_.head_dim;
  plan.window = shape_.window;
  plan.max_decode_rows = shape_.max_decode_rows;
  plan_ = Buffer<uint8_t>(plan_bytes(plan));
  plan_.fill(0xFF);
  workspace_ = Buffer<uint8_t>(workspace_bytes(plan));
  workspace_.fill(0);
  launch(nullptr);
  require(cudaDeviceSynchronize(), "step");
}

void World::launch(cudaStream_t stream) const {
  AppendParams append_params;
  append_params.batch = {sequences_.get(), static_cast<int>(host_sequences_.size()), rows_,
                         page_tables_.get(), static_cast<int64_t>(table_stride_)};
  append_params.cache = cache();
  append_params.q_heads = shape_.q_heads;
  append_params.qkv = qkv_.get();
  append_params.qkv_stride = width();
  append_params.q = q_.get();
  append_params.q_scale = shape_.format == CacheFormat::fp8 ? q_scale_.get() : nullptr;
  require(append(append_params, stream));
  if (!attend_) return;

  AttentionParams p;
  p.shape.batch = append_params.batch;
  p.shape.format = shape_.format;
  p.shape.q_heads = shape_.q_heads;
  p.shape.kv_heads = shape_.kv_heads;
  p.shape.head_dim = shape_.head_dim;
  p.shape.window = shape_.window;
  p.shape.max_decode_rows = shape_.max_decode_rows;
  p.plan = plan_.get();
  p.workspace = workspace_.get();
  p.cache = append_params.cache;
  p.q = q_.get();
  p.q_scale = append_params.q_scale;
  p.out = out_.get();
  p.out_type = shape_.out_type;
  p.softmax_scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
  p.logit_soft_cap = shape_.soft_cap;
  p.sinks = shape_.sinks ? sinks_.get() : nullptr;
  p.accumulate = shape_.accumulate;
  require(make_plan(p.shape, plan_.get(), stream));
  require(decode(p, stream));
  const bool long_rows = std::any_of(host_sequences_.begin(), host_sequences_.end(),
                                     [&](const Sequence& s) { return s.row_count > shape_.max_decode_rows; });
  if (long_rows) require(prefill(p, stream));
}

void World::move_sequences(int by) const {
  std::vector<Sequence> moved = host_sequences_;
  for (Sequence& sequence : moved) sequence.first_position += by;
  sequences_.upload(moved);
}

void World::fill_context(int sequence, int end) {
  constexpr int kChunk = 16384;
  for (int first = 0; first < end; first += kChunk)
    step({{sequence, first, std::min(kChunk, end - first)}}, false);
}

std::vector<float> World::output() const {
  const std::vector<uint8_t> bytes = out_.download();
  std::vector<float> values(static_cast<size_t>(rows_) * shape_.q_heads * shape_.head_dim);
  for (size_t i = 0; i < values.size(); ++i) {
    if (shape_.out_type == OutputType::f32) {
      std::memcpy(&values[i], &bytes[4 * i], 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, &bytes[2 * i], 2);
      values[i] = from_bf16(bits);
    }
  }
  return values;
}

Errors World::compare(int samples) const {
  std::vector<Sample> all;
  const int group = shape_.q_heads / shape_.kv_heads;
  for (const Sequence& s : host_sequences_) {
    for (int row = 0; row < s.row_count; ++row) {
      for (int head = 0; head < shape_.q_heads; ++head) {
        const int position = s.first_position + row;
        const int first = shape_.window > 0 ? std::max<int64_t>(0, position - shape_.window + 1) : 0;
        all.push_back({static_cast<int64_t>(s.row_begin + row) * shape_.q_heads + head, s.page_table,
                       head / group, head, first, position});
      }
    }
  }
  if (static_cast<int>(all.size()) > samples) {  // always the first and the last row of the step
    std::mt19937 random(7);
    std::shuffle(all.begin() + 1, all.end() - 1, random);
    std::swap(all[samples - 1], all.back());
    all.resize(samples);
  }
  int longest = 0;
  for (const Sample& s : all) longest = std::max(longest, s.last - s.first + 1);

  Buffer<Sample> device_samples(all);
  Buffer<double> scores(all.size() * longest);
  Buffer<double> exact(all.size() * shape_.head_dim);
  Buffer<double> quantised(all.size() * shape_.head_dim);
  ReferenceParams p = {};
  p.format = shape_.format;
  p.samples = device_samples.get();
  p.pool = pool_.get();
  p.page_stride = page_stride_;
  p.head_stride = head_stride_;
  p.page_tables = page_tables_.get();
  p.table_stride = table_stride_;
  p.q = q_.get();
  p.q_scale = shape_.format == CacheFormat::fp8 ? q_scale_.get() : nullptr;
  p.k_scale = scaled_ ? k_scale_.get() : nullptr;
  p.v_scale = scaled_ ? v_scale_.get() : nullptr;
  p.sinks = shape_.sinks ? sinks_.get() : nullptr;
  p.softmax_scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
  p.soft_cap = shape_.soft_cap;
  p.head_dim = shape_.head_dim;
  p.scores = scores.get();
  p.stride = longest;
  p.exact = exact.get();
  p.quantised = quantised.get();
  reference_scores<<<dim3((longest + 255) / 256, all.size()), 256>>>(p);
  reference_output<<<dim3(all.size(), shape_.head_dim / 8), 256>>>(p);
  require(cudaDeviceSynchronize(), "reference");

  const std::vector<double> right = exact.download();
  const std::vector<double> rounded = quantised.download();
  const std::vector<float> out = output();
  double sums[4] = {0, 0, 0, 0};
  double bias = 0;
  Errors errors;
  for (size_t i = 0; i < all.size(); ++i) {
    double row[2] = {0, 0};
    for (int dim = 0; dim < shape_.head_dim; ++dim) {
      const double x = out[all[i].query * shape_.head_dim + dim];
      const double a = right[i * shape_.head_dim + dim];
      const double b = rounded[i * shape_.head_dim + dim];
      sums[0] += (x - a) * (x - a);
      sums[1] += a * a;
      row[0] += (x - b) * (x - b);
      row[1] += b * b;
      bias += x - a;
    }
    sums[2] += row[0];
    sums[3] += row[1];
    const double error = std::sqrt(row[0] / row[1]);
    errors.worst = std::isfinite(error) ? std::max(errors.worst, error) : INFINITY;
  }
  const double count = static_cast<double>(all.size()) * shape_.head_dim;
  errors.exact = std::sqrt(sums[0] / sums[1]);
  errors.quantised = std::sqrt(sums[2] / sums[3]);
  errors.bias = bias / count / std::sqrt(sums[1] / count);
  return errors;
}

}  // namespace kv8::attention::cuda::test
