// The host's part of a plan: sizes, and the launch of the kernel that fills it.
#include "attention/cuda/plan.h"

#include "attention/cuda/check.h"
#include "attention/cuda/sm90/plan_kernel.h"
#include "attention/cuda/sm90/shapes.h"

namespace kv8::attention::cuda {

namespace {

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int multiprocessors() {
  int device = 0;
  int count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  return count;
}

}  // namespace

Partition partition(const PlanParams& params) {
  Partition cut;
  cut.group = params.q_heads / params.kv_heads;
  cut.decode_columns = sm90::decode_columns(params.head_dim, cut.group * params.max_decode_rows);
  cut.multiprocessors = multiprocessors();
  cut.decode_ctas =
      cut.multiprocessors * sm90::decode_shape(params.format, params.head_dim, cut.decode_columns).ctas;
  cut.prefill_tokens =
      sm90::prefill_warpgroups(params.format, params.head_dim) * (sm90::kPrefillRows / cut.group);
  cut.prefill_blocks = params.batch.rows / cut.prefill_tokens + params.batch.sequence_count;
  return cut;
}

PlanOffsets plan_offsets(const PlanParams& params) {
  const Partition cut = partition(params);
  const auto sequences = static_cast<size_t>(params.batch.sequence_count);
  PlanOffsets at;
  at.decode_sequences = aligned(sizeof(PlanHeader));
  at.decode_starts = at.decode_sequences + aligned(sequences * sizeof(DecodeSequence));
  at.block_begins = at.decode_starts + aligned(static_cast<size_t>(cut.decode_ctas) * sizeof(DecodeStart));
  at.blocks = at.block_begins + aligned((sequences + 1) * sizeof(int32_t));
  at.total = at.blocks + aligned(static_cast<size_t>(cut.prefill_blocks) * sizeof(PrefillBlock));
  return at;
}

WorkspaceOffsets workspace_offsets(const PlanParams& params) {
  const Partition cut = partition(params);
  const auto ctas = static_cast<size_t>(cut.decode_ctas);
  WorkspaceOffsets at;
  at.prefill_counters = 0;
  at.decode_arrivals = 256;
  at.decode_partials = at.decode_arrivals + aligned(ctas * 3 * sizeof(uint32_t));
  at.total =
      at.decode_partials +
      ctas * kPartialsPerCta *
          aligned(static_cast<size_t>(partial_floats(params.head_dim, cut.decode_columns)) * sizeof(float));
  return at;
}

size_t plan_bytes(const PlanParams& params) {
  return check_plan(params) ? plan_offsets(params).total : 0;
}

size_t workspace_bytes(const PlanParams& params) {
  return check_plan(params) ? workspace_offsets(params).total : 0;
}

Status make_plan(const PlanParams& params, void* plan, cudaStream_t stream) {
  if (Status status = check_plan(params); !status) return status;
  if (Status status = check_pointer(plan, 16, "plan", "make_plan"); !status) return status;
  const PlanOffsets at = plan_offsets(params);
  auto* bytes = static_cast<uint8_t*>(plan);
  sm90::PlanKernelParams kernel;
  kernel.batch = params.batch;
  kernel.cut = partition(params);
  kernel.kv_heads = params.kv_heads;
  kernel.tile_bytes = head_bytes(params.format, params.head_dim);
  kernel.window = params.window;
  kernel.max_decode_rows = params.max_decode_rows;
  kernel.header = reinterpret_cast<PlanHeader*>(bytes);
  kernel.decode_sequences = reinterpret_cast<DecodeSequence*>(bytes + at.decode_sequences);
  kernel.decode_starts = reinterpret_cast<DecodeStart*>(bytes + at.decode_starts);
  kernel.block_begins = reinterpret_cast<int32_t*>(bytes + at.block_begins);
  kernel.blocks = reinterpret_cast<PrefillBlock*>(bytes + at.blocks);
  return cuda_status(sm90::launch_plan(kernel, stream), "launch of plan_kernel");
}

}  // namespace kv8::attention::cuda
