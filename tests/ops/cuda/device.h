// What the tests of the CUDA ops share: device memory, BF16 on the host, random numbers, and launches that
// must succeed, eagerly and replayed from a graph.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "ops/cuda/kernels/launch.h"

namespace kv8::ops::cuda::test {

void require(cudaError_t error, const char* what);  // ends the program

// Device memory; new memory is filled with bytes of 0xFF, which are NaN in every float type.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    void* data = nullptr;
    require(cudaMalloc(&data, (count + 1) * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(data);
    poison();
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) { upload(values); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { cudaFree(data_); }

  T* get() const { return data_; }
  size_t count() const { return count_; }
  void poison() const { require(cudaMemset(data_, 0xFF, count_ * sizeof(T)), "cudaMemset"); }
  void upload(const std::vector<T>& values) const {
    require(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "upload");
  }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    require(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

std::vector<uint16_t> to_bf16(const std::vector<float>& values);
std::vector<float> from_bf16(const std::vector<uint16_t>& values);

// N(0, 1) times scale.
std::vector<float> random_normal(size_t count, uint64_t seed, float scale = 1.0F);
std::vector<uint16_t> random_bf16(size_t count, uint64_t seed, float scale = 1.0F);

// The launch must succeed; waits for it.
void run(const std::function<Status(cudaStream_t)>& launch);
// Captures the launches into a graph; the result replays it and waits.
class Graph {
 public:
  explicit Graph(const std::function<Status(cudaStream_t)>& launch);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();
  void replay() const;

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
};

// ||a - b|| / ||b||; NaN if anything is.
double relative_error(const std::vector<float>& a, const std::vector<double>& b);

}  // namespace kv8::ops::cuda::test
