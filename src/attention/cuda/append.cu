// Append: what lies between the projections and attention, in one launch.
//
// A CTA takes 32 consecutive rows of the step and one head of Q, K or V; it doesn't matter whose rows they
// are. Q and K: a warp a row. V is transposed on its way, through shared memory: a lane a row, so that the 32
// neighbouring positions of a prefill chunk leave as full sectors. What bounds it is memory: 2 bytes in, 1
// out for each number.
#include <cuda_bf16.h>

#include "attention/cuda/check.h"
#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/ptx/math.cuh"

namespace kv8::attention::cuda {

namespace {

constexpr int kRows = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr float kLargest = 448.0F;  // of e4m3

// A row of the step: where it stands and where its K and V go. position < 0: a row of no sequence.
struct Place {
  int position;
  int end;  // one past the last position that this step writes for the sequence
  int page;
};

__device__ Place find_place(const Batch& batch, int row) {
  int low = 0;
  int high = batch.sequence_count;
  while (high - low > 1) {  // the last sequence that begins at or before the row
    const int middle = (low + high) / 2;
    if (batch.sequences[middle].row_begin <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  // Sequences without rows may share a row_begin with the one before them.
  while (low > 0 && batch.sequences[low].row_count == 0) --low;
  const Sequence sequence = batch.sequences[low];
  const int index = row - sequence.row_begin;
  if (index < 0 || index >= sequence.row_count) return {-1, 0, 0};
  const int position = sequence.first_position + index;
  const int page = batch.page_tables[sequence.page_table * batch.page_table_stride + position / kPageTokens];
  return {position, sequence.first_position + sequence.row_count, page};
}

// cos and sin of position * inverse_frequency. The product is float32, as in the models' own code; it is
// reduced to one turn in double, since at a million tokens it is too large for float32's reduction.
__device__ float2 rotation(int position, float inverse_frequency) {
  const double turns =
      static_cast<double>(static_cast<float>(position) * inverse_frequency) * 0.15915494309189535;
  float sine;
  float cosine;
  sincospif(2.0F * static_cast<float>(turns - rint(turns)), &sine, &cosine);
  return {cosine, sine};
}

__device__ float warp_sum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}
__device__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, step));
  return x;
}

// Lane l holds dims [kPer * l, kPer * (l + 1)) of a head: norm, then RoPE through a row of shared memory,
// because a dim's partner may be any number of lanes away.
template <int kHeadDim>
__device__ void norm_and_rotate(const AppendParams& p, const float* norm, int position, float* row,
                                float (&x)[kHeadDim / 32]) {
  constexpr int kPer = kHeadDim / 32;
  const int lane = threadIdx.x % 32;
  if (norm != nullptr) {
    float square = 0.0F;
#pragma unroll
    for (int i = 0; i < kPer; ++i) square = fmaf(x[i], x[i], square);
    const float factor = rsqrtf(warp_sum(square) / kHeadDim + p.norm_epsilon);
#pragma unroll
    for (int i = 0; i < kPer; ++i) x[i] = x[i] * factor * norm[lane * kPer + i];
  }
  if (p.rope == RopeKind::none) return;
#pragma unroll
  for (int i = 0; i < kPer; ++i) row[lane * kPer + i] = x[i];
  __syncwarp();
  const int half = p.rotary_dim / 2;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int dim = lane * kPer + i;
    if (dim >= p.rotary_dim) continue;
    const bool interleaved = p.rope == RopeKind::interleaved;
    const int pair = interleaved ? dim / 2 : dim % half;
    const bool second = interleaved ? dim % 2 != 0 : dim >= half;
    const float partner = row[interleaved ? dim ^ 1 : second ? dim - half : dim + half];
    const float2 turn = rotation(position, p.inverse_frequencies[pair]);
    x[i] = p.rope_magnitude *
           (second ? fmaf(x[i], turn.x, partner * turn.y) : fmaf(x[i], turn.x, -partner * turn.y));
  }
  __syncwarp();
}

template <int kPer>
__device__ void load_head(const __nv_bfloat16* source, float (&x)[kPer]) {
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(source) + threadIdx.x % 32 * (kPer / 2);
#pragma unroll
  for (int i = 0; i < kPer / 2; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

template <int kPer>
__device__ void store_fp8(uint8_t* target, const float (&x)[kPer]) {
  if constexpr (kPer == 2) {
    *reinterpret_cast<uint16_t*>(target) = ptx::to_e4m3x2(x[0], x[1]);
  } else {
#pragma unroll
    for (int i = 0; i < kPer; i += 4) {
      *reinterpret_cast<uint32_t*>(target + i) = ptx::to_e4m3x4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    }
  }
}

// The last number that e4m3 takes without saturating is 464 less a bit: it still rounds to 448.
__device__ int beyond_range(float x) {
  return fabsf(x) >= 464.0F;
}

__device__ void count_saturations(unsigned long long* counter, int count) {
  count = __reduce_add_sync(~0U, count);
  if (counter != nullptr && threadIdx.x % 32 == 0 && count > 0)
    atomicAdd(counter, static_cast<unsigned long long>(count));
}

template <int kHeadDim>
__device__ void append_query(const AppendParams& p, int head, int row, const Place& place, float* scratch) {
  constexpr int kPer = kHeadDim / 32;
  const int lane = threadIdx.x % 32;
  float x[kPer];
  load_head<kPer>(static_cast<const __nv_bfloat16*>(p.qkv) + row * p.qkv_stride + head * kHeadDim, x);
  norm_and_rotate<kHeadDim>(p, p.q_norm, place.position, scratch, x);
  float largest = 0.0F;
#pragma unroll
  for (int i = 0; i < kPer; ++i) largest = fmaxf(largest, fabsf(x[i]));
  largest = warp_max(largest);
  const float scale = largest > 0.0F ? largest / kLargest : 1.0F;
#pragma unroll
  for (int i = 0; i < kPer; ++i) x[i] = x[i] / scale;
  const int64_t index = static_cast<int64_t>(row) * p.q_heads + head;
  store_fp8<kPer>(p.q + index * kHeadDim + lane * kPer, x);
  if (lane == 0) p.q_scale[index] = scale;
}

template <int kHeadDim>
__device__ void append_key(const AppendParams& p, int head, int row, const Place& place, float* scratch) {
  constexpr int kPer = kHeadDim / 32;
  const int lane = threadIdx.x % 32;
  float x[kPer];
  load_head<kPer>(
      static_cast<const __nv_bfloat16*>(p.qkv) + row * p.qkv_stride + (p.q_heads + head) * kHeadDim, x);
  norm_and_rotate<kHeadDim>(p, p.k_norm, place.position, scratch, x);
  const float scale = p.cache.k_scale != nullptr ? p.cache.k_scale[head] : 1.0F;
  int saturated = 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    x[i] = x[i] / scale;
    saturated += beyond_range(x[i]);
  }
  uint8_t* keys = p.cache.pool + place.page * p.cache.page_stride + head * p.cache.head_stride;
  store_fp8<kPer>(keys + key_offset(kHeadDim, place.position % kPageTokens, lane * kPer), x);
  count_saturations(p.saturations, saturated);
}

// 32 rows of one V head. tile: [kRows][kHeadDim + 4] bytes, a row a token.
template <int kHeadDim>
__device__ void append_values(const AppendParams& p, int head, int first_row, const Place* places,
                              uint8_t* tile) {
  constexpr int kPitch = kHeadDim + 4;
  constexpr int kPer = kHeadDim / 32;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const float scale = p.cache.v_scale != nullptr ? p.cache.v_scale[head] : 1.0F;
  for (int i = warp; i < kRows; i += kWarps) {
    if (places[i].position < 0) continue;
    float x[kPer];
    load_head<kPer>(static_cast<const __nv_bfloat16*>(p.qkv) + (first_row + i) * p.qkv_stride +
                        (p.q_heads + p.cache.kv_heads + head) * kHeadDim,
                    x);
    int saturated = 0;
#pragma unroll
    for (int k = 0; k < kPer; ++k) {
      x[k] = x[k] / scale;
      saturated += beyond_range(x[k]);
    }
    store_fp8<kPer>(tile + i * kPitch + lane * kPer, x);
    count_saturations(p.saturations != nullptr ? p.saturations + 1 : nullptr, saturated);
  }
  __syncthreads();

  const Place place = places[lane];
  if (place.position >= 0) {
    uint8_t* page = p.cache.pool + place.page * p.cache.page_stride + head * p.cache.head_stride;
    for (int dim = warp; dim < kHeadDim; dim += kWarps) {
      page[value_offset(kHeadDim, place.position % kPageTokens, dim)] = tile[lane * kPitch + dim];
    }
  }
  // A page's first token: whatever the page held before must not reach a product, where 0 * NaN is NaN.
  // Positions that this step writes belong to others.
  for (int i = 0; i < kRows; ++i) {
    const Place first = places[i];
    if (first.position < 0 || first.position % kPageTokens != 0) continue;
    uint8_t* page = p.cache.pool + first.page * p.cache.page_stride + head * p.cache.head_stride;
    const int written = min(kPageTokens, first.end - first.position);
    for (int dim = warp; dim < kHeadDim; dim += kWarps) {
      for (int slot = lane; slot < kPageTokens; slot += 32) {
        if (slot >= written) page[value_offset(kHeadDim, slot, dim)] = 0;
      }
    }
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kThreads) append_kernel(const __grid_constant__ AppendParams p) {
  __shared__ Place places[kRows];
  __shared__ union {
    float rotated[kWarps][kHeadDim];
    uint8_t values[kRows * (kHeadDim + 4)];
  } shared;
  ptx::launch_dependents();
  ptx::dependency_wait();
  const int first_row = blockIdx.x * kRows;
  const int head = blockIdx.y;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x < kRows) {
    const int row = first_row + threadIdx.x;
    places[threadIdx.x] = row < p.batch.rows ? find_place(p.batch, row) : Place{-1, 0, 0};
  }
  __syncthreads();
  if (head >= p.q_heads + p.cache.kv_heads) {
    append_values<kHeadDim>(p, head - p.q_heads - p.cache.kv_heads, first_row, places, shared.values);
    return;
  }
  for (int i = warp; i < kRows; i += kWarps) {
    const Place place = places[i];
    if (place.position < 0) continue;
    if (head < p.q_heads) {
      append_query<kHeadDim>(p, head, first_row + i, place, shared.rotated[warp]);
    } else {
      append_key<kHeadDim>(p, head - p.q_heads, first_row + i, place, shared.rotated[warp]);
    }
  }
}

template <int kHeadDim>
cudaError_t launch(const AppendParams& params, cudaStream_t stream) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((params.batch.rows + kRows - 1) / kRows),
                        static_cast<unsigned>(params.q_heads + 2 * params.cache.kv_heads));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, append_kernel<kHeadDim>, params);
}

Status check(const AppendParams& p) {
  if (Status status = check_batch(p.batch, "append"); !status) return status;
  if (Status status = check_cache(p.cache, "append"); !status) return status;
  if (p.q_heads <= 0 || p.q_heads % p.cache.kv_heads != 0) {
    return invalid_argument("append: q_heads is %d, expected a multiple of kv_heads %d", p.q_heads,
                            p.cache.kv_heads);
  }
  if (p.qkv == nullptr || p.q == nullptr || p.q_scale == nullptr) {
    return invalid_argument("append: qkv, q and q_scale must not be null");
  }
  const int64_t width = static_cast<int64_t>(p.q_heads + 2 * p.cache.kv_heads) * p.cache.head_dim;
  if (p.qkv_stride < width || p.qkv_stride % 8 != 0) {
    return invalid_argument("append: qkv_stride is %lld, expected a multiple of 8, at least %lld",
                            static_cast<long long>(p.qkv_stride), static_cast<long long>(width));
  }
  if (p.rope == RopeKind::none) return {};
  if (p.inverse_frequencies == nullptr) return invalid_argument("append: RoPE needs inverse_frequencies");
  if (p.rotary_dim <= 0 || p.rotary_dim % 2 != 0 || p.rotary_dim > p.cache.head_dim) {
    return invalid_argument("append: rotary_dim is %d, expected an even number up to head_dim %d",
                            p.rotary_dim, p.cache.head_dim);
  }
  return {};
}

}  // namespace

Status append(const AppendParams& params, cudaStream_t stream) {
  if (Status status = check(params); !status) return status;
  if (params.batch.rows == 0) return {};
  switch (params.cache.head_dim) {
    case 64:
      return cuda_status(launch<64>(params, stream), "launch of append_kernel<64>");
    case 128:
      return cuda_status(launch<128>(params, stream), "launch of append_kernel<128>");
    default:
      return cuda_status(launch<256>(params, stream), "launch of append_kernel<256>");
  }
}

}  // namespace kv8::attention::cuda
