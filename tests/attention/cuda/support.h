// What the tests of the CUDA attention share: a check macro, device buffers, and a World, which is one
// layer's cache with sequences of random tokens, every step of which can be compared with float64 on the same
// quantised numbers. Nothing but CUDA is needed, so that these tests also build where the project's other
// dependencies are missing.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "kv8/attention.h"

namespace kv8::attention::cuda::test {

extern int failures;  // of the running test

#define KV8_EXPECT(condition, ...)                                      \
  do {                                                                  \
    if (!(condition)) {                                                 \
      ++::kv8::attention::cuda::test::failures;                         \
      std::printf("  %s:%d: not %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                         \
      std::printf("\n");                                                \
    }                                                                   \
  } while (false)

void require(cudaError_t error, const char* what);  // ends the program
void require(const Status& status);

// Device memory, uninitialised.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count) : count_(count) {
    if (count > 0) require(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) { upload(values); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer(Buffer&& other) noexcept : data_(other.data_), count_(other.count_) { other.data_ = nullptr; }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~Buffer() { cudaFree(data_); }

  T* get() const { return data_; }
  size_t count() const { return count_; }
  void upload(const std::vector<T>& values) const {
    require(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    require(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return values;
  }
  void fill(int byte) const { require(cudaMemset(data_, byte, count_ * sizeof(T)), "fill"); }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

uint16_t to_bf16(float x);
float from_bf16(uint16_t bits);
double from_e4m3(uint8_t bits);
uint8_t to_e4m3(double x);  // nearest even, saturating; independent of CUDA's conversion

struct Shape {
  CacheFormat format = CacheFormat::fp8;
  int head_dim = 128;
  int q_heads = 8;
  int kv_heads = 2;
  int64_t window = 0;
  float soft_cap = 0.0F;
  bool sinks = false;
  bool scales = false;  // FP8: per head, far from 1; else none
  int max_decode_rows = 1;
  Fp8Accumulate accumulate = Fp8Accumulate::tile;
  OutputType out_type = OutputType::f32;
  int padding = 0;    // bytes between heads and between pages
  int poison = 0x7F;  // what the pool holds at first
  float v_mean = 0.5F;
};

// `rows` tokens of a sequence from position `first` on.
struct Chunk {
  int sequence;
  int first;
  int rows;
};

// Relative errors of a step's rows, over all rows and heads looked at.
struct Errors {
  double exact = 0;      // to float64 on the same Q, K, V
  double quantised = 0;  // FP8: to the same with P rounded to e4m3 tile by tile, as mode tile defines it;
                         // BF16: as exact
  double worst = 0;      // largest of a row's, to `quantised`
  double bias = 0;       // mean of (x - exact) / rms(exact)
};

class World {
 public:
  // lengths: tokens of each sequence; their Q, K, V are random: K and Q ~ N(0, 1), V ~ N(v_mean, 1).
  World(const Shape& shape, std::vector<int> lengths, uint64_t seed);

  const Shape& shape() const { return shape_; }
  int width() const { return (shape_.q_heads + 2 * shape_.kv_heads) * shape_.head_dim; }
  // Overwrites the token's numbers from `column` on in [Q heads, K heads, V heads].
  void set_token(int sequence, int position, int column, const std::vector<float>& values);
  void set_all_values(float value);
  void set_scale(float k, float v);  // of all heads; applied to what is appended from now on

  // Appends the chunks' tokens and, if attend, computes their rows. The same chunk may be given several
  // times.
  void step(const std::vector<Chunk>& chunks, bool attend = true);
  // Tokens [0, end) of a sequence in chunks, without attention.
  void fill_context(int sequence, int end);
  // Of the last step: [rows][q_heads][head_dim].
  std::vector<float> output() const;
  std::vector<uint8_t> output_bytes() const { return out_.download(); }
  // At most `samples` (row, head) pairs of the last step against float64.
  Errors compare(int samples) const;

  // For a graph: launches of the last step again, on the same buffers.
  void launch(cudaStream_t stream) const;
  // Changes where the last step's sequences stand, in device memory only.
  void move_sequences(int by) const;

  Cache cache() const;
  const std::vector<int32_t>& page_table(int sequence) const { return tables_[sequence]; }
  const Buffer<uint8_t>& pool() const { return pool_; }

 private:
  int tokens_before(int sequence) const;

  Shape shape_;
  std::vector<int> lengths_;
  std::vector<std::vector<int32_t>> tables_;
  int64_t head_stride_;
  int64_t page_stride_;
  size_t table_stride_ = 0;
  Buffer<uint16_t> tokens_;
  Buffer<uint8_t> pool_;
  Buffer<int32_t> page_tables_;
  Buffer<float> k_scale_;
  Buffer<float> v_scale_;
  Buffer<float> sinks_;
  bool scaled_ = false;

  std::vector<Sequence> host_sequences_;
  int rows_ = 0;
  bool attend_ = true;
  Buffer<Sequence> sequences_;
  Buffer<uint16_t> qkv_;
  Buffer<uint8_t> q_;
  Buffer<float> q_scale_;
  Buffer<uint8_t> out_;
  Buffer<uint8_t> plan_;
  Buffer<uint8_t> workspace_;
};

double relative_error(const std::vector<float>& a, const std::vector<float>& b);

// The tests, in the order in which main runs them.
void append_matches_host();
void append_counts_saturations();
void append_rounds_ties_by_the_reciprocal();
void decode_matches_float64();
void prefill_matches_float64();
void masks_match_float64();
void modes_differ_as_documented();
void chunking_does_not_matter();
void ones_give_one();
void growing_scores();
void sinks_and_needles();
void long_contexts();
void scales_fold();
void learned_sinks_and_scales();
void poison_never_reaches();
void graphs_replay();
void many_parts_merge();
void table_refuses();
void append_refuses();

}  // namespace kv8::attention::cuda::test
