// FP8 prefill attention for Hopper: chunks of any length, causal at any offset, over paged keys and values.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/cuda/sm90/kernel_params.h"

namespace kv8::attention::cuda::sm90 {

// One CTA a multiprocessor; blocks of rows are dealt out by a counter. Instantiated for head_dim 64, 128,
// 256. Mode `tile`: P scaled by its own tile, sums of a tile to float32, and Q K^T again, exactly, where
// scores are large.
template <int kHeadDim>
cudaError_t launch_prefill_fp8(const KernelParams& params, int ctas, cudaStream_t stream);

}  // namespace kv8::attention::cuda::sm90
