// decode, prefill and explain_kernels: checks, the choice from the table, parameters as kernels want them.
#include "kv8/attention.h"

#include <cstdarg>
#include <cstdio>

#include "attention/cuda/check.h"
#include "attention/cuda/plan.h"
#include "attention/cuda/sm90/shapes.h"
#include "attention/cuda/table.h"

namespace kv8::attention::cuda {

namespace {

Status check(const AttentionParams& p, const char* caller) {
  if (Status status = check_plan(p.shape); !status) return status;
  if (Status status = check_cache(p.cache, caller); !status) return status;
  if (p.cache.kv_heads != p.shape.kv_heads || p.cache.head_dim != p.shape.head_dim) {
    return invalid_argument("%s: the plan is for %d KV heads of %d, the cache has %d of %d", caller,
                            p.shape.kv_heads, p.shape.head_dim, p.cache.kv_heads, p.cache.head_dim);
  }
  if (p.cache.format != p.shape.format) {
    return invalid_argument("%s: the plan is for a cache in %s, the cache is in %s", caller,
                            to_string(p.shape.format), to_string(p.cache.format));
  }
  const struct {
    const void* pointer;
    int alignment;
    const char* name;
  } pointers[] = {{p.plan, 16, "plan"}, {p.workspace, 256, "workspace"}, {p.q, 16, "q"}, {p.out, 16, "out"}};
  for (const auto& [pointer, alignment, name] : pointers) {
    if (Status status = check_pointer(pointer, alignment, name, caller); !status) return status;
  }
  if (p.cache.format == CacheFormat::fp8) {
    if (Status status = check_pointer(p.q_scale, 4, "q_scale", caller); !status) return status;
  }
  if (!(p.softmax_scale > 0.0F)) {
    return invalid_argument("%s: softmax_scale is %g, expected a positive number", caller, p.softmax_scale);
  }
  if (!(p.logit_soft_cap >= 0.0F)) {
    return invalid_argument("%s: logit_soft_cap is %g, expected 0 or a positive number", caller,
                            p.logit_soft_cap);
  }
  int device = 0;
  int major = 0;
  int minor = 0;
  if (Status status = cuda_status(cudaGetDevice(&device), "cudaGetDevice"); !status) return status;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  if (major != 9 || minor != 0) {
    return unsupported("%s: this GPU has compute capability %d.%d; the kernels are for 9.0 (Hopper)", caller,
                       major, minor);
  }
  return {};
}

sm90::KernelParams kernel_params(const AttentionParams& p) {
  const PlanOffsets plan_at = plan_offsets(p.shape);
  const WorkspaceOffsets work_at = workspace_offsets(p.shape);
  const auto* plan = static_cast<const uint8_t*>(p.plan);
  auto* workspace = static_cast<uint8_t*>(p.workspace);
  constexpr int32_t kNoWindow = 1 << 30;

  sm90::KernelParams k = {};
  k.plan = reinterpret_cast<const PlanHeader*>(plan);
  k.decode_sequences = reinterpret_cast<const DecodeSequence*>(plan + plan_at.decode_sequences);
  k.decode_starts = reinterpret_cast<const DecodeStart*>(plan + plan_at.decode_starts);
  k.prefill_blocks = reinterpret_cast<const PrefillBlock*>(plan + plan_at.blocks);
  k.sequences = p.shape.batch.sequences;
  k.page_tables = p.shape.batch.page_tables;
  k.page_table_stride = p.shape.batch.page_table_stride;
  k.pool = p.cache.pool;
  k.page_stride = p.cache.page_stride;
  k.head_stride = p.cache.head_stride;
  k.k_scale = p.cache.k_scale;
  k.v_scale = p.cache.v_scale;
  k.q = p.q;
  k.q_scale = p.q_scale;
  k.out = p.out;
  k.out_f32 = p.out_type == OutputType::f32;
  k.q_heads = p.shape.q_heads;
  k.kv_heads = p.shape.kv_heads;
  k.group = p.shape.q_heads / p.shape.kv_heads;
  k.score_scale = p.softmax_scale * sm90::kLog2e;
  k.soft_cap = p.logit_soft_cap * sm90::kLog2e;
  k.inverse_soft_cap = p.logit_soft_cap > 0.0F ? 1.0F / k.soft_cap : 0.0F;
  k.sinks = p.sinks;
  k.window =
      p.shape.window > 0 && p.shape.window < kNoWindow ? static_cast<int32_t>(p.shape.window) : kNoWindow;
  k.prefill_counters = reinterpret_cast<uint32_t*>(workspace + work_at.prefill_counters);
  k.decode_arrivals = reinterpret_cast<uint32_t*>(workspace + work_at.decode_arrivals);
  k.decode_partials = reinterpret_cast<float*>(workspace + work_at.decode_partials);
  return k;
}

KernelDescriptor describe(const AttentionParams& p, Phase phase) {
  const int columns = phase == Phase::decode ? partition(p.shape).decode_columns : sm90::kPrefillRows;
  // Only FP8 products can be summed in several ways.
  const Fp8Accumulate accumulate = p.shape.format == CacheFormat::fp8 ? p.accumulate : Fp8Accumulate::tile;
  return {phase, p.shape.format, p.shape.head_dim, columns, accumulate};
}

Status launch(const AttentionParams& p, Phase phase, cudaStream_t stream) {
  const char* caller = to_string(phase);
  if (Status status = check(p, caller); !status) return status;
  const Kernel* kernel = nullptr;
  if (Status status = find_kernel(describe(p, phase), &kernel); !status) return status;
  if (p.shape.batch.sequence_count == 0) return {};
  const Partition cut = partition(p.shape);
  const int ctas = phase == Phase::decode ? cut.decode_ctas : cut.multiprocessors;
  char call[96];
  std::snprintf(call, sizeof call,
                "launch of the %s kernel for a cache in %s, head_dim %d, %d columns, mode %s", caller,
                to_string(kernel->descriptor.format), kernel->descriptor.head_dim, kernel->descriptor.columns,
                to_string(kernel->descriptor.accumulate));
  return cuda_status(kernel->launch(kernel_params(p), ctas, stream), call);
}

// Appends to a text of limited size, and counts what would have been written.
struct Text {
  char* buffer;
  size_t size;
  size_t length = 0;

  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list values;
    va_start(values, format);
    const size_t room = length < size ? size - length : 0;
    const int written = std::vsnprintf(room > 0 ? buffer + length : nullptr, room, format, values);
    va_end(values);
    if (written > 0) length += static_cast<size_t>(written);
  }
};

}  // namespace

Status decode(const AttentionParams& params, cudaStream_t stream) {
  return launch(params, Phase::decode, stream);
}

Status prefill(const AttentionParams& params, cudaStream_t stream) {
  return launch(params, Phase::prefill, stream);
}

size_t explain_kernels(const AttentionParams* params, char* buffer, size_t size) {
  Text text = {buffer, size};
  text.add("phase    cache  head_dim  columns  mode       group    masks\n");
  for (const Kernel& kernel : kernels()) {
    const KernelDescriptor& d = kernel.descriptor;
    text.add("%-8s %-5s  %-8d  %-7d  %-9s  1 to 16  causal at any offset, window, sinks, soft cap\n",
             to_string(d.phase), to_string(d.format), d.head_dim, d.columns, to_string(d.accumulate));
  }
  if (params == nullptr) return text.length;
  for (const Phase phase : {Phase::decode, Phase::prefill}) {
    Status status = check_plan(params->shape);
    const Kernel* kernel = nullptr;
    if (status) status = find_kernel(describe(*params, phase), &kernel);
    if (status) {
      text.add("%s takes: %s, head_dim %d, %d columns, mode %s\n", to_string(phase),
               to_string(kernel->descriptor.format), kernel->descriptor.head_dim, kernel->descriptor.columns,
               to_string(kernel->descriptor.accumulate));
    } else {
      text.add("%s takes none: %s\n", to_string(phase), status.message);
    }
  }
  return text.length;
}

}  // namespace kv8::attention::cuda
