// Exit code 77 (skipped) where there is no Hopper GPU.
#include <cstdio>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int device_count = 0;
  cudaDeviceProp properties = {};
  if (cudaGetDeviceCount(&device_count) != cudaSuccess || device_count == 0 ||
      cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major != 9) {
    std::printf("SKIPPED: no Hopper GPU: NOTHING of the CUDA ops was tested\n");
    return 77;
  }
  std::printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
  return RUN_ALL_TESTS();
}
