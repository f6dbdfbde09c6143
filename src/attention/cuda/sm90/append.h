// Append for Hopper: norms, RoPE, Q as the attention kernels want it, K and V into their pages.
#pragma once

#include <cuda_runtime_api.h>

#include "kv8/attention.h"

namespace kv8::attention::cuda::sm90 {

// The parameters must have been checked; rows and sequences must not be none.
cudaError_t launch_append(const AppendParams& params, cudaStream_t stream);

}  // namespace kv8::attention::cuda::sm90
