// KV8_HOST_DEVICE marks small functions that host code and kernels share.
#pragma once

#ifdef __CUDACC__
#define KV8_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define KV8_HOST_DEVICE inline
#endif
