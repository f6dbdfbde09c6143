// Decode attention for Hopper: up to 32 rows share one pass over a sequence's keys and values.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/cuda/sm90/kernel_params.h"

namespace kv8::attention::cuda::sm90 {

// Launches `ctas` CTAs (the plan's). Instantiated at head_dim 64, 128 (8, 16 or 32 columns) and 256 (8 or
// 16); FP8 for every mode, BF16 for `tile`.
template <CacheFormat kFormat, int kHeadDim, int kColumns, Fp8Accumulate kMode>
cudaError_t launch_decode(const KernelParams& params, int ctas, cudaStream_t stream);

}  // namespace kv8::attention::cuda::sm90
