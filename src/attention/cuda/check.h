// Errors of the CUDA attention: values with a message, no exceptions, nothing but the C library.
#pragma once

#include "kv8/attention.h"

namespace kv8::attention::cuda {

#ifdef __GNUC__
#define KV8_PRINTF __attribute__((format(printf, 1, 2)))
#else
#define KV8_PRINTF
#endif
Status invalid_argument(const char* format, ...) KV8_PRINTF;
Status unsupported(const char* format, ...) KV8_PRINTF;
#undef KV8_PRINTF

// The result of a CUDA call, named in the message.
Status cuda_status(cudaError_t error, const char* call);

Status check_plan(const PlanParams& params);
Status check_batch(const Batch& batch, const char* caller);
Status check_cache(const Cache& cache, const char* caller);
Status check_pointer(const void* pointer, int alignment, const char* name, const char* caller);

}  // namespace kv8::attention::cuda
