// Append: what lies between the projections and attention, in one launch. Bound by memory: 2 bytes in, and 1
// (FP8) or 2 out for each number.
//
// A warp takes a row of the step and some of its heads, several at a time: a lane has 16 dims, the partners
// of 8 rotations. So cos and sin are computed once for a row, and nothing but norms and maxima crosses lanes.
// V of an FP8 cache has CTAs of its own (append_values.cuh).
#include <algorithm>
#include <type_traits>

#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/sm90/append.h"
#include "attention/cuda/sm90/append_values.cuh"
#include "attention/cuda/sm90/launch.h"

namespace kv8::attention::cuda::sm90 {

namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
// Warps among which a step is divided, if it has so many parts: enough for all multiprocessors, several
// times.
constexpr int kWantedWarps = 16384;
constexpr float kLargest = 448.0F;  // of e4m3

struct AppendKernelParams {
  AppendParams append;
  int splits;      // of a row's heads
  int row_ctas;    // times splits; behind them the CTAs of FP8 values
  int value_rows;  // of one of those
};

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

// Over the lanes that share a head.
template <int kLanes>
__device__ float head_sum(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(~0U, x, step);
  return x;
}
template <int kLanes>
__device__ float head_max(float x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0U, x, step));
  return x;
}

enum class Part : uint8_t { query, key, value };

template <int kHeadDim, CacheFormat kFormat>
class RowAppender {
  static constexpr int kLanes = kHeadDim / 16;  // of a head
  static constexpr bool kFp8 = kFormat == CacheFormat::fp8;

 public:
  static constexpr int kHeads = 32 / kLanes;  // in a pass of the warp

  // Passes of a row: queries, keys and, unless they go another way, values.
  KV8_HOST_DEVICE static int passes(int heads) { return (heads + kHeads - 1) / kHeads; }
  KV8_HOST_DEVICE static int passes(const AppendParams& p) {
    return passes(p.q_heads) + (kFp8 ? 1 : 2) * passes(p.cache.kv_heads);
  }

  __device__ RowAppender(const AppendParams& p, int row) : p_(p), row_(row), lane_(threadIdx.x % kLanes) {
    // Two chunks of 8 dims: those whose partners the other ones are, where halves are rotated.
    const int half = p.rotary_dim / 2;
    if (p.rope != RopeKind::half_split) {
      chunk_[0] = 16 * lane_;
      chunk_[1] = 16 * lane_ + 8;
    } else if (8 * lane_ < half) {
      chunk_[0] = 8 * lane_;
      chunk_[1] = half + 8 * lane_;
    } else {  // dims that are not rotated
      chunk_[0] = p.rotary_dim + 8 * lane_ - half;
      chunk_[1] = chunk_[0] + (kHeadDim - p.rotary_dim) / 2;
    }
  }

  __device__ void run(int begin, int end, float2 (&turns)[kHeadDim / 2]) {
    const Place place = find_place(p_.batch, row_);
    if (place.position < 0) return;  // qkv need not have such a row
    Pass next = pass(begin);
    load(next);
    if (p_.rope != RopeKind::none) prepare_rotation(place.position, turns);
    for (int i = begin; i < end; ++i) {
      Pass current = next;
      if (i + 1 < end) {
        next = pass(i + 1);
        load(next);
      }
      if (current.part == Part::value) {
        write_value(current, place);
      } else {
        write(current, place);
      }
    }
    if (kFp8 && p_.saturations != nullptr) {
      saturated_ = __reduce_add_sync(~0U, saturated_);
      if (threadIdx.x % 32 == 0 && saturated_ > 0)
        atomicAdd(p_.saturations, static_cast<unsigned long long>(saturated_));
    }
  }

 private:
  struct Pass {
    Part part;
    int head;  // the lane's, of its part
    bool valid;
    uint4 raw[2];
  };

  __device__ Pass pass(int index) const {
    const int q_passes = passes(p_.q_heads);
    const int kv_passes = passes(p_.cache.kv_heads);
    Pass result;
    int heads = p_.q_heads;
    result.part = Part::query;
    if (index >= q_passes) {
      index -= q_passes;
      heads = p_.cache.kv_heads;
      result.part = Part::key;
      if (index >= kv_passes) {
        index -= kv_passes;
        result.part = Part::value;
      }
    }
    result.head = index * kHeads + static_cast<int>(threadIdx.x) % 32 / kLanes;
    result.valid = result.head < heads;
    return result;
  }

  __device__ void load(Pass& pass) const {
    pass.raw[0] = pass.raw[1] = {0, 0, 0, 0};
    if (!pass.valid) return;
    const int before = pass.part == Part::query ? 0
                       : pass.part == Part::key ? p_.q_heads
                                                : p_.q_heads + p_.cache.kv_heads;
    const auto* head =
        static_cast<const __nv_bfloat16*>(p_.qkv) + row_ * p_.qkv_stride + (before + pass.head) * kHeadDim;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      pass.raw[half] = __ldcs(reinterpret_cast<const uint4*>(head + chunk_[half]));
  }

  // cos and sin of the lane's rotations, by way of a table that the warp computes together.
  __device__ void prepare_rotation(int position, float2 (&turns)[kHeadDim / 2]) {
    for (int i = static_cast<int>(threadIdx.x) % 32; i < kHeadDim / 2; i += 32) {
      float2 turn = {1.0F, 0.0F};
      if (i < p_.rotary_dim / 2) {
        turn = rotation(position, p_.inverse_frequencies[i]);
        turn = {turn.x * p_.rope_magnitude, turn.y * p_.rope_magnitude};
      }
      turns[i] = turn;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) turn_[i] = turns[8 * lane_ + i];
  }

  __device__ void normalize(float (&x)[2][8], const float* norm) const {
    float square = 0.0F;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < 8; ++i) square = fmaf(x[half][i], x[half][i], square);
    }
    const float factor = rsqrtf(head_sum<kLanes>(square) / kHeadDim + p_.norm_epsilon);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* weights = reinterpret_cast<const float4*>(norm + chunk_[half]);
      const float4 low = weights[0];
      const float4 high = weights[1];
      const float w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) x[half][i] = x[half][i] * factor * w[i];
    }
  }

  static __device__ void rotate(float& first, float& second, float2 turn) {
    const float x = first;
    first = fmaf(x, turn.x, -second * turn.y);
    second = fmaf(second, turn.x, x * turn.y);
  }

  __device__ void write(const Pass& pass, const Place& place) {
    float x[2][8];
    widen8(pass.raw[0], x[0]);
    widen8(pass.raw[1], x[1]);
    const bool query = pass.part == Part::query;
    if (const float* norm = query ? p_.q_norm : p_.k_norm; norm != nullptr) normalize(x, norm);
    if (p_.rope == RopeKind::half_split) {
#pragma unroll
      for (int i = 0; i < 8; ++i) rotate(x[0][i], x[1][i], turn_[i]);
    } else if (p_.rope == RopeKind::interleaved) {
#pragma unroll
      for (int i = 0; i < 8; ++i) rotate(x[i / 4][i % 4 * 2], x[i / 4][i % 4 * 2 + 1], turn_[i]);
    }
    if constexpr (kFp8) {
      write_fp8(x, pass, place);
    } else {
      if (!pass.valid) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        __nv_bfloat162 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(x[half][2 * i], x[half][2 * i + 1]);
        auto* target =
            query ? static_cast<uint8_t*>(p_.q) + 2 * (query_at(pass.head) + chunk_[half])
                  : page(pass.head, place) + key_offset(kFormat, kHeadDim, slot(place), chunk_[half]);
        *reinterpret_cast<uint4*>(target) = *reinterpret_cast<const uint4*>(pairs);
      }
    }
  }

  __device__ void write_fp8(const float (&x)[2][8], const Pass& pass, const Place& place) {
    const bool query = pass.part == Part::query;
    float inverse_scale;
    if (query) {
      float largest = 0.0F;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(x[half][i]));
      }
      largest = head_max<kLanes>(largest);
      const float scale = largest > 0.0F ? largest / kLargest : 1.0F;
      inverse_scale = 1.0F / scale;
      if (lane_ == 0 && pass.valid) p_.q_scale[static_cast<int64_t>(row_) * p_.q_heads + pass.head] = scale;
    } else {
      inverse_scale = p_.cache.k_scale != nullptr && pass.valid ? 1.0F / p_.cache.k_scale[pass.head] : 1.0F;
    }
    if (!pass.valid) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint2 packed;
      const int beyond = quantize8(x[half], inverse_scale, packed);
      if (!query) saturated_ += beyond;
      auto* target = query
                         ? static_cast<uint8_t*>(p_.q) + query_at(pass.head) + chunk_[half]
                         : page(pass.head, place) + key_offset(kFormat, kHeadDim, slot(place), chunk_[half]);
      *reinterpret_cast<uint2*>(target) = packed;
    }
  }

  __device__ void write_value(const Pass& pass, const Place& place) const {
    if (!pass.valid) return;
    uint8_t* target = page(pass.head, place);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<uint4*>(target + value_offset(kFormat, kHeadDim, slot(place), chunk_[half])) =
          pass.raw[half];
    }
    if (place.position + 1 != place.end || !place.begins_page()) return;
    for (int behind = slot(place) + 1; behind < kPageTokens; ++behind) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<uint4*>(target + value_offset(kFormat, kHeadDim, behind, chunk_[half])) = {0, 0, 0,
                                                                                                     0};
      }
    }
  }

  __device__ int64_t query_at(int head) const {
    return (static_cast<int64_t>(row_) * p_.q_heads + head) * kHeadDim;
  }
  __device__ uint8_t* page(int head, const Place& place) const {
    return p_.cache.pool + place.page * p_.cache.page_stride + head * p_.cache.head_stride;
  }
  static __device__ int slot(const Place& place) {
    return place.position % kPageTokens;
  }

  const AppendParams& p_;
  int row_;
  int lane_;  // of the head
  int chunk_[2];
  float2 turn_[8];
  int saturated_ = 0;
};

template <int kHeadDim, CacheFormat kFormat>
__global__ void __launch_bounds__(kThreads, 3)
    append_kernel(const __grid_constant__ AppendKernelParams params) {
  using Rows = RowAppender<kHeadDim, kFormat>;
  constexpr bool kFp8 = kFormat == CacheFormat::fp8;
  struct Empty {};
  __shared__ union Shared {
    __device__ Shared() {}
    float2 turns[kWarps][kHeadDim / 2];
    std::conditional_t<kFp8, ValueTile<kHeadDim>, Empty> values;
  } shared;
  const AppendParams& p = params.append;
  ptx::launch_dependents();
  ptx::dependency_wait();
  const int cta = static_cast<int>(blockIdx.x);
  if (cta < params.row_ctas) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int row = cta / params.splits * kWarps + warp;
    if (row >= p.batch.rows) return;
    const int passes = Rows::passes(p);
    const int split = cta % params.splits;
    Rows(p, row).run(split * passes / params.splits, (split + 1) * passes / params.splits,
                     shared.turns[warp]);
    return;
  }
  if constexpr (kFp8) {
    const int index = cta - params.row_ctas;
    const int head = index % p.cache.kv_heads;
    const int first_row = index / p.cache.kv_heads * params.value_rows;
    const auto* values =
        static_cast<const __nv_bfloat16*>(p.qkv) + (p.q_heads + p.cache.kv_heads + head) * kHeadDim;
    int saturated = append_values<kHeadDim, kThreads>(
        p.batch, values, p.qkv_stride, first_row, params.value_rows,
        p.cache.v_scale != nullptr ? 1.0F / p.cache.v_scale[head] : 1.0F,
        p.cache.pool + head * p.cache.head_stride, p.cache.page_stride, shared.values);
    if (p.saturations == nullptr) return;
    saturated = __reduce_add_sync(~0U, saturated);
    if (threadIdx.x % 32 == 0 && saturated > 0)
      atomicAdd(p.saturations + 1, static_cast<unsigned long long>(saturated));
  }
}

template <int kHeadDim, CacheFormat kFormat>
cudaError_t launch_append_for(const AppendParams& p, cudaStream_t stream) {
  const int passes = RowAppender<kHeadDim, kFormat>::passes(p);
  const int rows = p.batch.rows;
  AppendKernelParams params;
  params.append = p;
  params.splits = std::clamp((kWantedWarps + rows - 1) / rows, 1, passes);
  params.row_ctas = (rows + kWarps - 1) / kWarps * params.splits;
  params.value_rows = rows <= 256 ? 4 : kValueRows;
  int ctas = params.row_ctas;
  if (kFormat == CacheFormat::fp8)
    ctas += (rows + params.value_rows - 1) / params.value_rows * p.cache.kv_heads;
  return launch(append_kernel<kHeadDim, kFormat>, {dim3(static_cast<unsigned>(ctas)), kThreads, 0}, stream,
                params);
}

template <CacheFormat kFormat>
cudaError_t launch_append_in(const AppendParams& p, cudaStream_t stream) {
  switch (p.cache.head_dim) {
    case 64:
      return launch_append_for<64, kFormat>(p, stream);
    case 128:
      return launch_append_for<128, kFormat>(p, stream);
    default:
      return launch_append_for<256, kFormat>(p, stream);
  }
}

}  // namespace

cudaError_t launch_append(const AppendParams& params, cudaStream_t stream) {
  return params.cache.format == CacheFormat::fp8 ? launch_append_in<CacheFormat::fp8>(params, stream)
                                                 : launch_append_in<CacheFormat::bf16>(params, stream);
}

}  // namespace kv8::attention::cuda::sm90
