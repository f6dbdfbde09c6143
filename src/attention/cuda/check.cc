#include "attention/cuda/check.h"

#include <cstdarg>
#include <cstdio>

namespace kv8::attention::cuda {

namespace {

Status formatted(Status::Code code, const char* format, va_list values) {
  Status status;
  status.code = code;
  std::vsnprintf(status.message, sizeof status.message, format, values);
  return status;
}

}  // namespace

Status invalid_argument(const char* format, ...) {
  va_list values;
  va_start(values, format);
  Status status = formatted(Status::Code::invalid_argument, format, values);
  va_end(values);
  return status;
}

Status unsupported(const char* format, ...) {
  va_list values;
  va_start(values, format);
  Status status = formatted(Status::Code::unsupported, format, values);
  va_end(values);
  return status;
}

Status cuda_status(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  Status status;
  status.code = Status::Code::cuda_error;
  std::snprintf(status.message, sizeof status.message, "%s: %s (%s)", call, cudaGetErrorString(error),
                cudaGetErrorName(error));
  return status;
}

Status check_pointer(const void* pointer, int alignment, const char* name, const char* caller) {
  if (pointer == nullptr) return invalid_argument("%s: %s is null", caller, name);
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) != 0) {
    return invalid_argument("%s: %s is at %p, expected an address aligned to %d bytes", caller, name, pointer,
                            alignment);
  }
  return {};
}

Status check_batch(const Batch& batch, const char* caller) {
  if (batch.sequence_count < 0 || batch.rows < 0) {
    return invalid_argument("%s: %d sequences with %d rows", caller, batch.sequence_count, batch.rows);
  }
  if (batch.sequence_count > 0 && batch.sequences == nullptr)
    return invalid_argument("%s: sequences is null", caller);
  if (batch.sequence_count > 0 && batch.page_tables == nullptr)
    return invalid_argument("%s: page_tables is null", caller);
  return {};
}

Status check_cache(const Cache& cache, const char* caller) {
  if (cache.head_dim != 64 && cache.head_dim != 128 && cache.head_dim != 256) {
    return unsupported("%s: head_dim is %d; there are kernels for 64, 128 and 256", caller, cache.head_dim);
  }
  if (cache.kv_heads <= 0) return invalid_argument("%s: kv_heads is %d", caller, cache.kv_heads);
  if (Status status = check_pointer(cache.pool, 128, "the cache's pool", caller); !status) return status;
  if (cache.format == CacheFormat::bf16 && (cache.k_scale != nullptr || cache.v_scale != nullptr)) {
    return invalid_argument("%s: a BF16 cache has no scales; k_scale and v_scale must be null", caller);
  }
  const int64_t head = head_bytes(cache.format, cache.head_dim);
  if (cache.head_stride < head || cache.head_stride % 128 != 0) {
    return invalid_argument("%s: head_stride is %lld bytes, expected a multiple of 128, at least %lld",
                            caller, static_cast<long long>(cache.head_stride), static_cast<long long>(head));
  }
  const int64_t page = (cache.kv_heads - 1) * cache.head_stride + head;
  if (cache.page_stride < page || cache.page_stride % 128 != 0) {
    return invalid_argument("%s: page_stride is %lld bytes, expected a multiple of 128, at least %lld",
                            caller, static_cast<long long>(cache.page_stride), static_cast<long long>(page));
  }
  return {};
}

Status check_plan(const PlanParams& params) {
  if (Status status = check_batch(params.batch, "plan"); !status) return status;
  if (params.kv_heads <= 0 || params.q_heads <= 0 || params.q_heads % params.kv_heads != 0) {
    return invalid_argument("plan: %d query heads over %d KV heads: expected a multiple", params.q_heads,
                            params.kv_heads);
  }
  if (params.q_heads / params.kv_heads > 16) {
    return unsupported("plan: %d query heads for each KV head; there are kernels for 1 to 16",
                       params.q_heads / params.kv_heads);
  }
  if (params.head_dim != 64 && params.head_dim != 128 && params.head_dim != 256) {
    return unsupported("plan: head_dim is %d; there are kernels for 64, 128 and 256", params.head_dim);
  }
  if (params.window < 0)
    return invalid_argument("plan: window is %lld", static_cast<long long>(params.window));
  if (params.max_decode_rows < 1 || params.max_decode_rows > 8) {
    return invalid_argument("plan: max_decode_rows is %d, expected 1 to 8", params.max_decode_rows);
  }
  return {};
}

}  // namespace kv8::attention::cuda
