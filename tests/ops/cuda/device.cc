#include "ops/cuda/device.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>

#include "core/half.h"

namespace kv8::ops::cuda::test {

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

std::vector<uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  out.reserve(values.size());
  for (float value : values) out.push_back(float_to_bf16(value));
  return out;
}

std::vector<float> from_bf16(const std::vector<uint16_t>& values) {
  std::vector<float> out;
  out.reserve(values.size());
  for (uint16_t value : values) out.push_back(bf16_to_float(value));
  return out;
}

std::vector<float> random_normal(size_t count, uint64_t seed, float scale) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

std::vector<uint16_t> random_bf16(size_t count, uint64_t seed, float scale) {
  return to_bf16(random_normal(count, seed, scale));
}

void run(const std::function<Status(cudaStream_t)>& launch) {
  const Status status = launch(nullptr);
  ASSERT_TRUE(status) << status.message;
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Graph::Graph(const std::function<Status(cudaStream_t)>& launch) {
  require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  require(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  const Status status = launch(stream_);
  EXPECT_TRUE(status) << status.message;
  require(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
  require(cudaGraphInstantiate(&exec_, graph_, 0), "cudaGraphInstantiate");
}

Graph::~Graph() {
  cudaGraphExecDestroy(exec_);
  cudaGraphDestroy(graph_);
  cudaStreamDestroy(stream_);
}

void Graph::replay() const {
  require(cudaGraphLaunch(exec_, stream_), "cudaGraphLaunch");
  require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace kv8::ops::cuda::test
