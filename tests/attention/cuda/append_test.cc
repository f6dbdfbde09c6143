// Append against float64 on the host: every byte of the pages, Q and its scales.
#include <algorithm>
#include <cmath>
#include <random>

#include "attention/cuda/page_layout.h"
#include "support.h"

namespace kv8::attention::cuda::test {

namespace {

struct AppendCase {
  int head_dim;
  int q_heads;
  int kv_heads;
  RopeKind rope;
  int rotary_dim;
  bool norm;
  bool scales;
  int padding;
  CacheFormat format = CacheFormat::fp8;
};

struct AppendRun {
  AppendCase c;
  std::vector<Sequence> sequences;
  std::vector<std::vector<int32_t>> tables;
  std::vector<float> qkv;
  std::vector<float> inverse_frequencies;
  std::vector<float> q_norm;
  std::vector<float> k_norm;
  std::vector<float> k_scale;
  std::vector<float> v_scale;
  double magnitude = 1.0;
  double epsilon = 1e-6;
};

// A head of Q or K as append must make it, in float64.
std::vector<double> normed_and_rotated(const AppendRun& run, const float* x, const std::vector<float>& norm,
                                       int position) {
  const int dims = run.c.head_dim;
  std::vector<double> y(x, x + dims);
  if (run.c.norm) {
    double square = 0;
    for (double value : y) square += value * value;
    const double factor = 1 / std::sqrt(square / dims + run.epsilon);
    for (int i = 0; i < dims; ++i) y[i] *= factor * norm[i];
  }
  if (run.c.rope == RopeKind::none) return y;
  const std::vector<double> before = y;
  const int half = run.c.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double angle =
        static_cast<float>(position) * run.inverse_frequencies[i];  // float32, as in the models
    const double cosine = run.magnitude * std::cos(angle);
    const double sine = run.magnitude * std::sin(angle);
    const int a = run.c.rope == RopeKind::interleaved ? 2 * i : i;
    const int b = run.c.rope == RopeKind::interleaved ? 2 * i + 1 : i + half;
    y[a] = before[a] * cosine - before[b] * sine;
    y[b] = before[b] * cosine + before[a] * sine;
  }
  return y;
}

// A number as a cache of that format stores it.
int stored(CacheFormat format, double x) {
  return format == CacheFormat::fp8 ? to_e4m3(x) : to_bf16(static_cast<float>(x));
}
int stored_at(CacheFormat format, const std::vector<uint8_t>& bytes, size_t at) {
  return format == CacheFormat::fp8 ? bytes[at] : bytes[at] | bytes[at + 1] << 8;
}

double value_of(CacheFormat format, int code) {
  return format == CacheFormat::fp8 ? from_e4m3(static_cast<uint8_t>(code))
                                    : from_bf16(static_cast<uint16_t>(code));
}

// Counts where stored numbers differ; more than a neighbour is never right, but where a rotation cancels:
// what float32 leaves there may be several of bf16's steps, and is nothing beside the head's other numbers.
struct Differences {
  CacheFormat format;
  int64_t count = 0;
  int64_t off_by_one = 0;
  int64_t wrong = 0;

  void add(int got, int right) {
    const int sign = format == CacheFormat::fp8 ? 0x80 : 0x8000;
    ++count;
    if (got == right || ((got | right) & (sign - 1)) == 0) return;
    const bool near = ((got & sign) == (right & sign) && std::abs(got - right) == 1) ||
                      std::fabs(value_of(format, got) - value_of(format, right)) < 1e-6;
    ++(near ? off_by_one : wrong);
  }
};

void check_append(const AppendCase& c, int poison) {
  const bool fp8 = c.format == CacheFormat::fp8;
  const int bytes = element_bytes(c.format);
  AppendRun run;
  run.c = c;
  std::mt19937 random(c.head_dim + c.q_heads + poison);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  // A chunk from the start, one from the middle of a page over its end, one in the middle, decode tokens, one
  // of them a page's first, far positions, a sequence without rows, and chunks that end between aligned 32
  // tokens.
  run.sequences = {
      {0, 150, 0, 0},   {150, 77, 100, 1}, {227, 20, 37, 2}, {247, 0, 5, 3},
      {247, 1, 300, 4}, {248, 1, 256, 5},  {249, 1, 127, 6}, {250, 3, 1000003 / 128 * 128 + 126, 7},
      {253, 64, 0, 8},  {317, 32, 128, 9}};
  const int rows = 349;
  int32_t next_page = 0;
  size_t table_stride = 0;
  for (const Sequence& s : run.sequences)
    table_stride = std::max<size_t>(table_stride, (s.first_position + s.row_count) / kPageTokens + 2);
  std::vector<int32_t> flat(run.sequences.size() * table_stride, -1);
  for (const Sequence& s : run.sequences) {
    for (int page = s.first_position / kPageTokens; page <= (s.first_position + s.row_count) / kPageTokens;
         ++page) {
      flat[s.page_table * table_stride + page] = next_page++ * 7 % 64;
    }
  }
  const int64_t head_stride = head_bytes(c.format, c.head_dim) + c.padding;
  const int64_t page_stride = head_stride * c.kv_heads + c.padding;
  const int width = (c.q_heads + 2 * c.kv_heads) * c.head_dim;
  const int64_t qkv_stride = width + 8;

  std::vector<uint16_t> bits(rows * qkv_stride, 0x7FC0);
  run.qkv.resize(rows * qkv_stride);
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < width; ++i) {
      bits[row * qkv_stride + i] = to_bf16(normal(random));
      run.qkv[row * qkv_stride + i] = from_bf16(bits[row * qkv_stride + i]);
    }
  }
  for (int i = 0; i < c.rotary_dim / 2; ++i)
    run.inverse_frequencies.push_back(std::pow(10000.0F, -2.0F * i / c.rotary_dim));
  for (int i = 0; i < c.head_dim; ++i) {
    run.q_norm.push_back(1.0F + 0.3F * normal(random));
    run.k_norm.push_back(1.0F + 0.3F * normal(random));
  }
  for (int i = 0; i < c.kv_heads; ++i) {
    run.k_scale.push_back(c.scales && fp8 ? 0.01F * std::exp(normal(random)) : 1.0F);
    run.v_scale.push_back(c.scales && fp8 ? 0.02F * std::exp(normal(random)) : 1.0F);
  }
  run.magnitude = c.rope == RopeKind::none ? 1.0 : 1.25;

  Buffer<uint8_t> pool(64 * page_stride);
  pool.fill(poison);
  Buffer<Sequence> sequences(run.sequences);
  Buffer<int32_t> tables(flat);
  Buffer<uint16_t> qkv(bits);
  Buffer<float> frequencies(run.inverse_frequencies);
  Buffer<float> q_norm(run.q_norm);
  Buffer<float> k_norm(run.k_norm);
  Buffer<float> k_scale(run.k_scale);
  Buffer<float> v_scale(run.v_scale);
  Buffer<uint8_t> q(static_cast<size_t>(rows) * c.q_heads * c.head_dim * bytes);
  Buffer<float> q_scale(static_cast<size_t>(rows) * c.q_heads);
  q.fill(0xFF);
  q_scale.fill(0xFF);

  AppendParams p;
  p.batch = {sequences.get(), static_cast<int>(run.sequences.size()), rows + 40, tables.get(),
             static_cast<int64_t>(table_stride)};
  p.cache = {c.format,
             pool.get(),
             page_stride,
             head_stride,
             c.kv_heads,
             c.head_dim,
             c.scales && fp8 ? k_scale.get() : nullptr,
             c.scales && fp8 ? v_scale.get() : nullptr};
  p.q_heads = c.q_heads;
  p.qkv = qkv.get();
  p.qkv_stride = qkv_stride;
  p.rope = c.rope;
  p.rotary_dim = c.rotary_dim;
  p.inverse_frequencies = frequencies.get();
  p.rope_magnitude = static_cast<float>(run.magnitude);
  p.q_norm = c.norm ? q_norm.get() : nullptr;
  p.k_norm = c.norm ? k_norm.get() : nullptr;
  p.norm_epsilon = static_cast<float>(run.epsilon);
  p.q = q.get();
  p.q_scale = fp8 ? q_scale.get() : nullptr;
  require(append(p, nullptr));
  require(cudaDeviceSynchronize(), "append");

  const std::vector<uint8_t> got_pool = pool.download();
  const std::vector<uint8_t> got_q = q.download();
  const std::vector<float> got_scale = q_scale.download();
  Differences keys{c.format};
  Differences values{c.format};
  Differences queries{c.format};
  double scale_error = 0;
  std::vector<uint8_t> touched(got_pool.size(), 0);
  auto place = [&](const Sequence& s, int position, int head) {
    return flat[s.page_table * table_stride + position / kPageTokens] * page_stride + head * head_stride;
  };
  for (const Sequence& s : run.sequences) {
    for (int i = 0; i < s.row_count; ++i) {
      const int row = s.row_begin + i;
      const int position = s.first_position + i;
      const int slot = position % kPageTokens;
      const float* x = run.qkv.data() + row * qkv_stride;
      for (int head = 0; head < c.q_heads; ++head) {
        const std::vector<double> y = normed_and_rotated(run, x + head * c.head_dim, run.q_norm, position);
        double largest = 0;
        for (double value : y) largest = std::max(largest, std::fabs(value));
        const size_t index = static_cast<size_t>(row) * c.q_heads + head;
        if (fp8) scale_error = std::max(scale_error, std::fabs(got_scale[index] / (largest / 448) - 1));
        for (int dim = 0; dim < c.head_dim; ++dim) {
          const float inverse = fp8 ? 1.0F / (static_cast<float>(largest) / 448.0F) : 1.0F;
          queries.add(stored_at(c.format, got_q, (index * c.head_dim + dim) * bytes),
                      stored(c.format, static_cast<float>(y[dim]) * inverse));
        }
      }
      for (int head = 0; head < c.kv_heads; ++head) {
        const std::vector<double> y =
            normed_and_rotated(run, x + (c.q_heads + head) * c.head_dim, run.k_norm, position);
        const float* v = x + (c.q_heads + c.kv_heads + head) * c.head_dim;
        for (int dim = 0; dim < c.head_dim; ++dim) {
          const size_t key_at = place(s, position, head) + key_offset(c.format, c.head_dim, slot, dim);
          const size_t value_at = place(s, position, head) + value_offset(c.format, c.head_dim, slot, dim);
          // The float32 product with the reciprocal, as docs/numerics.md has it: ties must fall the same way.
          keys.add(stored_at(c.format, got_pool, key_at),
                   stored(c.format, static_cast<float>(y[dim]) * (1.0F / run.k_scale[head])));
          values.add(stored_at(c.format, got_pool, value_at),
                     stored(c.format, v[dim] * (1.0F / run.v_scale[head])));
          touched[key_at] = touched[value_at] = 1;
          touched[key_at + bytes - 1] = touched[value_at + bytes - 1] = 1;
        }
      }
    }
    // Of a page that this step began, V behind the last token is 0.
    for (int position = s.first_position + s.row_count; s.row_count > 0 && position % kPageTokens != 0;
         ++position) {
      if (position / kPageTokens * kPageTokens < s.first_position) break;
      for (int head = 0; head < c.kv_heads; ++head) {
        for (int dim = 0; dim < c.head_dim; ++dim) {
          const size_t at =
              place(s, position, head) + value_offset(c.format, c.head_dim, position % kPageTokens, dim);
          values.add(stored_at(c.format, got_pool, at), 0);
          touched[at] = touched[at + bytes - 1] = 1;
        }
      }
    }
  }
  int64_t stray = 0;
  for (size_t i = 0; i < got_pool.size(); ++i) stray += touched[i] == 0 && got_pool[i] != poison ? 1 : 0;
  KV8_EXPECT(keys.wrong + values.wrong + queries.wrong == 0,
             "head_dim %d: wrong numbers: K %lld, V %lld, Q %lld", c.head_dim,
             static_cast<long long>(keys.wrong), static_cast<long long>(values.wrong),
             static_cast<long long>(queries.wrong));
  // Float32 before the rounding moves a number across a tie once in a while.
  KV8_EXPECT(keys.off_by_one < keys.count / 5000 + 2 && queries.off_by_one < queries.count / 5000 + 2 &&
                 values.off_by_one == 0,
             "head_dim %d: neighbours: K %lld, V %lld, Q %lld", c.head_dim,
             static_cast<long long>(keys.off_by_one), static_cast<long long>(values.off_by_one),
             static_cast<long long>(queries.off_by_one));
  KV8_EXPECT(scale_error < 2e-6, "head_dim %d: q_scale is off by %.1e", c.head_dim, scale_error);
  KV8_EXPECT(stray == 0, "head_dim %d: %lld bytes written that are nobody's", c.head_dim,
             static_cast<long long>(stray));
}

}  // namespace

void append_matches_host() {
  const AppendCase cases[] = {
      {128, 8, 2, RopeKind::half_split, 128, false, false, 0},
      {128, 4, 4, RopeKind::interleaved, 128, true, true, 128},
      {64, 8, 1, RopeKind::half_split, 32, true, true, 0},
      {64, 2, 2, RopeKind::none, 0, false, true, 256},
      {256, 6, 2, RopeKind::half_split, 64, true, false, 0},
      {256, 2, 1, RopeKind::interleaved, 256, false, true, 128},
      {128, 5, 1, RopeKind::half_split, 96, false, true, 0},
      {128, 3, 1, RopeKind::interleaved, 42, true, true, 0},
  };
  for (AppendCase c : cases) {
    for (const CacheFormat format : {CacheFormat::fp8, CacheFormat::bf16}) {
      c.format = format;
      check_append(c, 0x7F);
      check_append(c, 0xFF);
    }
  }
}

void append_counts_saturations() {
  Shape shape;
  shape.kv_heads = 1;
  shape.q_heads = 1;
  World world(shape, {8}, 3);
  const int tokens = 4;
  std::vector<uint16_t> bits(tokens * 3 * 128, to_bf16(1.0F));
  for (int i = 0; i < 5; ++i)
    bits[384 * i % 1536 + 128 + 9 * i] = to_bf16(i % 2 == 0 ? 500.0F : -480.0F);  // K
  for (int i = 0; i < 3; ++i) bits[384 * i + 256 + 5 * i] = to_bf16(900.0F);      // V
  bits[128 + 77] = to_bf16(456.0F);  // rounds to 448, and is beyond it all the same
  bits[128 + 78] = to_bf16(448.0F);  // is not
  Buffer<uint16_t> qkv(bits);
  Buffer<unsigned long long> counters(std::vector<unsigned long long>{100, 200});
  Buffer<Sequence> sequences(std::vector<Sequence>{{0, tokens, 3, 0}});
  Buffer<int32_t> table(std::vector<int32_t>{0, 1});
  Buffer<uint8_t> q(tokens * 128);
  Buffer<float> q_scale(tokens);
  AppendParams p;
  p.batch = {sequences.get(), 1, tokens, table.get(), 2};
  p.cache = world.cache();
  p.q_heads = 1;
  p.qkv = qkv.get();
  p.qkv_stride = 384;
  p.q = q.get();
  p.q_scale = q_scale.get();
  p.saturations = counters.get();
  require(append(p, nullptr));
  const std::vector<unsigned long long> counts = counters.download();
  KV8_EXPECT(counts[0] == 106 && counts[1] == 203, "%llu and %llu", counts[0], counts[1]);
}

// A number halfway between two codes goes where the product with the reciprocal of the scale puts it; the
// quotient would put some of them elsewhere.
void append_rounds_ties_by_the_reciprocal() {
  const float scale = 0.03F;
  const float inverse = 1.0F / scale;
  std::vector<uint16_t> telling;  // bf16 numbers that tell the two apart
  for (int bits = 0x3000; from_bf16(static_cast<uint16_t>(bits)) / scale < 448; ++bits) {
    const float x = from_bf16(static_cast<uint16_t>(bits));
    if (to_e4m3(x * inverse) != to_e4m3(x / scale)) telling.push_back(static_cast<uint16_t>(bits));
  }
  KV8_EXPECT(!telling.empty(), "scale %g", scale);
  if (telling.empty()) return;
  std::vector<uint16_t> bits(128);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = telling[i % telling.size()];
  Shape shape;
  shape.kv_heads = shape.q_heads = 1;
  World world(shape, {8}, 3);
  world.set_scale(scale, scale);
  std::vector<uint16_t> row(384, 0);
  std::copy(bits.begin(), bits.end(), row.begin() + 128);
  std::copy(bits.begin(), bits.end(), row.begin() + 256);
  Buffer<uint16_t> qkv(row);
  Buffer<Sequence> sequences(std::vector<Sequence>{{0, 1, 0, 0}});
  Buffer<int32_t> table(std::vector<int32_t>{0});
  Buffer<uint8_t> q(128);
  Buffer<float> q_scale(1);
  AppendParams p;
  p.batch = {sequences.get(), 1, 1, table.get(), 1};
  p.cache = world.cache();
  p.q_heads = 1;
  p.qkv = qkv.get();
  p.qkv_stride = 384;
  p.q = q.get();
  p.q_scale = q_scale.get();
  require(append(p, nullptr));
  const std::vector<uint8_t> pool = world.pool().download();
  int wrong = 0;
  for (int dim = 0; dim < 128; ++dim) {
    const uint8_t right = to_e4m3(from_bf16(bits[dim]) * inverse);
    wrong += pool[key_offset(CacheFormat::fp8, 128, 0, dim)] != right ? 1 : 0;
    wrong += pool[value_offset(CacheFormat::fp8, 128, 0, dim)] != right ? 1 : 0;
  }
  KV8_EXPECT(wrong == 0, "%d of 256 numbers", wrong);
}

}  // namespace kv8::attention::cuda::test
