// Products with few rows, y = x W^T for 1 to 16 rows of x: what a decode step consists of. They read each
// weight once, so their time is that of reading memory. docs/kernels.md says how they are built and measured.
//
// W is row-major as checkpoints have it: no second copy in another order is needed beside the many-row
// products. The next product's weights are fetched before the kernel before it has ended.
//
// Deterministic: sums are formed in an order that depends on k and on whether there are more than 8 rows, not
// on the number of multiprocessors or on which block is first.
#pragma once

#include "ops/cuda/kernels/elementwise.h"

namespace kv8::ops::cuda {

constexpr int kSkinnyRows = 16;

// How stored FP8 weights become numbers: value = stored * scale.
enum class WeightScale : uint8_t {
  none,
  per_tensor,   // [1]
  per_channel,  // [n]
  per_block,    // [ceil(n / 128)][ceil(k / 128)]
};

struct SkinnyProduct {
  const void* weights = nullptr;  // [n][k] bf16 or f8_e4m3
  DType weight_type = DType::bf16;
  const float* scale = nullptr;  // f8_e4m3 only
  WeightScale scale_kind = WeightScale::none;
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs; a multiple of 32 for bf16, of 64 for f8_e4m3

  const void* x = nullptr;  // [rows][k] bf16
  int rows = 0;             // 1 to kSkinnyRows

  const float* bias = nullptr;  // [n] or null

  // The last step, in float32.
  enum class Finish : uint8_t {
    store,      // y [rows][n], bf16 or f32
    add,        // y [rows][n] f32 += product
    silu_gate,  // W is gate rows [0, n / 2) over up rows: y [rows][n / 2] = silu(gate) * up; n a multiple of
                // 16
    gelu_gate,
  };
  Finish finish = Finish::store;
  void* y = nullptr;
  DType y_type = DType::bf16;

  // At least skinny_workspace_bytes, zero when first used; left so that it can be used again, by any product.
  // One stream uses a workspace at a time.
  void* workspace = nullptr;
};

// For any number of rows up to kSkinnyRows.
size_t skinny_workspace_bytes(int64_t n, int64_t k);

Status skinny_product(cudaStream_t stream, const SkinnyProduct& product);

}  // namespace kv8::ops::cuda
