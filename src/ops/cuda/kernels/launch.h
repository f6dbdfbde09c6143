// What all launchers of this folder share.
//
// A launcher takes the stream first, then device pointers and shapes. It allocates nothing, reads nothing of
// the device and waits for nothing, so that it can be captured in a CUDA graph; what changes from step to
// step (tokens, rows, sampling parameters) lies in device memory. Every kernel is launched for programmatic
// dependent launch: it may be scheduled while the kernel before it still runs, and waits for that one's end
// before it reads or writes any activation. Weights are read before that wait: they must not be written in
// the same stream without a synchronisation between.
//
// Matrices are row-major without gaps; rows and pointers are 16-byte aligned unless a header says otherwise.
// A Status says what was wrong in words for a person; the kernels' own sizes are checked, contents are not.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "attention/cuda/check.h"
#include "core/dtype.h"

namespace kv8::ops::cuda {

using attention::cuda::cuda_status;
using attention::cuda::invalid_argument;
using attention::cuda::Status;
using attention::cuda::unsupported;

inline bool is_aligned16(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

// A launch of `kernel` that may begin before the stream's kernel before it has ended.
template <class... Parameters, class... Arguments>
cudaError_t launch_overlapped(void (*kernel)(Parameters...), dim3 grid, unsigned threads, size_t shared_bytes,
                              cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  void* pointers[] = {static_cast<void*>(&arguments)...};
  static_assert((std::is_same_v<Parameters, Arguments> && ...), "the kernel's own types");
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
}

}  // namespace kv8::ops::cuda
