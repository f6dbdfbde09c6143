// append: checks, and the launch.
#include "attention/cuda/sm90/append.h"

#include <initializer_list>

#include "attention/cuda/check.h"

namespace kv8::attention::cuda {

namespace {

Status check_rope(const AppendParams& p) {
  if (p.rope == RopeKind::none) return {};
  if (Status status = check_pointer(p.inverse_frequencies, 4, "inverse_frequencies", "append"); !status)
    return status;
  if (p.rotary_dim <= 0 || p.rotary_dim % 2 != 0 || p.rotary_dim > p.cache.head_dim) {
    return invalid_argument("append: rotary_dim is %d, expected an even number up to head_dim %d",
                            p.rotary_dim, p.cache.head_dim);
  }
  if (p.rope == RopeKind::half_split && p.rotary_dim % 16 != 0) {
    return unsupported("append: rotary_dim is %d; half-split RoPE is there for multiples of 16",
                       p.rotary_dim);
  }
  return {};
}

Status check(const AppendParams& p) {
  if (Status status = check_batch(p.batch, "append"); !status) return status;
  if (Status status = check_cache(p.cache, "append"); !status) return status;
  if (p.q_heads <= 0 || p.q_heads % p.cache.kv_heads != 0) {
    return invalid_argument("append: q_heads is %d, expected a multiple of kv_heads %d", p.q_heads,
                            p.cache.kv_heads);
  }
  if (Status status = check_pointer(p.qkv, 16, "qkv", "append"); !status) return status;
  if (Status status = check_pointer(p.q, 16, "q", "append"); !status) return status;
  if (p.cache.format == CacheFormat::fp8) {
    if (Status status = check_pointer(p.q_scale, 4, "q_scale", "append"); !status) return status;
  }
  for (const float* norm : {p.q_norm, p.k_norm}) {
    if (norm == nullptr) continue;
    if (Status status = check_pointer(norm, 16, "q_norm or k_norm", "append"); !status) return status;
  }
  const int64_t width = static_cast<int64_t>(p.q_heads + 2 * p.cache.kv_heads) * p.cache.head_dim;
  if (p.qkv_stride < width || p.qkv_stride % 8 != 0) {
    return invalid_argument("append: qkv_stride is %lld, expected a multiple of 8, at least %lld",
                            static_cast<long long>(p.qkv_stride), static_cast<long long>(width));
  }
  return check_rope(p);
}

}  // namespace

Status append(const AppendParams& params, cudaStream_t stream) {
  if (Status status = check(params); !status) return status;
  if (params.batch.rows == 0 || params.batch.sequence_count == 0) return {};  // rows of no sequence
  return cuda_status(sm90::launch_append(params, stream), "launch of append_kernel");
}

}  // namespace kv8::attention::cuda
