// How every kernel is launched.
#pragma once

#include <cuda_runtime_api.h>

namespace kv8::attention::cuda::sm90 {

struct LaunchShape {
  dim3 grid;
  int threads = 0;
  int shared_bytes = 0;  // dynamic
};

// The next launch may begin while this kernel drains: each waits for its data by itself (dependency_wait).
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
                   const Arguments&... arguments) {
  if (shape.shared_bytes > 48 * 1024) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes);
    if (error != cudaSuccess) return error;
  }
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace kv8::attention::cuda::sm90
