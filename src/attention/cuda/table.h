// The one table of attention kernels. What is not in it is refused, with the reason; nothing is substituted.
#pragma once

#include <span>

#include <cuda_runtime_api.h>

#include "attention/cuda/sm90/kernel_params.h"
#include "kv8/attention.h"

namespace kv8::attention::cuda {

enum class Phase : uint8_t { decode, prefill };

struct KernelDescriptor {
  Phase phase;
  CacheFormat format;
  int head_dim;
  int columns;               // decode: query rows that share a pass over the keys; prefill: 64
  Fp8Accumulate accumulate;  // BF16: tile

  bool operator==(const KernelDescriptor&) const = default;
};

struct Kernel {
  KernelDescriptor descriptor;
  cudaError_t (*launch)(const sm90::KernelParams& params, int ctas, cudaStream_t stream);
};

const char* to_string(Phase phase);
const char* to_string(CacheFormat format);
const char* to_string(Fp8Accumulate accumulate);

std::span<const Kernel> kernels();

// The kernel of a descriptor, or unsupported with what there is instead.
Status find_kernel(const KernelDescriptor& descriptor, const Kernel** kernel);

}  // namespace kv8::attention::cuda
