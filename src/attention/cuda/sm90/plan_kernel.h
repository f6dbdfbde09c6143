// Makes the plan of a step (plan.h) on the device.
#pragma once

#include <cuda_runtime_api.h>

#include "attention/cuda/plan.h"
#include "kv8/attention.h"

namespace kv8::attention::cuda::sm90 {

struct PlanKernelParams {
  Batch batch;
  Partition cut;
  int kv_heads;
  int64_t tile_bytes;  // of one KV head
  int64_t window;
  int max_decode_rows;
  PlanHeader* header;
  DecodeSequence* decode_sequences;
  DecodeStart* decode_starts;
  int32_t* block_begins;
  PrefillBlock* blocks;
};

cudaError_t launch_plan(const PlanKernelParams& params, cudaStream_t stream);

}  // namespace kv8::attention::cuda::sm90
