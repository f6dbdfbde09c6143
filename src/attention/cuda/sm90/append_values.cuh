// The values of an FP8 cache: V is transposed on its way into the pages.
//
// A group is the rows of a sequence whose positions share an aligned 32: of each dim, they fill 32
// neighbouring bytes of the page, a sector of memory. A CTA takes the groups that begin in its rows of the
// step, and one head; where chunks begin is thus no matter.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/page_layout.h"
#include "attention/cuda/ptx/math.cuh"
#include "attention/cuda/sm90/append_place.cuh"

namespace kv8::attention::cuda::sm90 {

constexpr int kValueGroup = 32;
constexpr int kValueRows = 32;                             // at most, in which a CTA's groups begin
constexpr int kValueScope = kValueRows + kValueGroup - 1;  // rows that they may reach

template <int kHeadDim>
struct ValueTile {
  static constexpr int kPitch = kHeadDim + 8;
  Place places[kValueScope + 1];
  alignas(8) uint8_t bytes[kValueScope * kPitch];  // e4m3, a row a token
};

// A row's group begins at this row of the scope; the sequence may begin behind the aligned position.
__device__ __forceinline__ int group_begin(const Place& place, int row) {
  return row - min(place.position % kValueGroup, place.position - place.first);
}

// Eight numbers to e4m3; returns how many lay beyond its range.
__device__ __forceinline__ int quantize8(const float (&x)[8], float inverse_scale, uint2& packed) {
  float y[8];
  int beyond = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    y[i] = x[i] * inverse_scale;
    beyond += fabsf(y[i]) > 448.0F ? 1 : 0;
  }
  packed = {ptx::to_e4m3x4(y[0], y[1], y[2], y[3]), ptx::to_e4m3x4(y[4], y[5], y[6], y[7])};
  return beyond;
}

__device__ __forceinline__ void widen8(const uint4& packed, float (&x)[8]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
  }
}

// values: V of the head in the first row of the step. owned: rows of the CTA. Returns the thread's number of
// saturations.
template <int kHeadDim, int kThreads>
__device__ int append_values(const Batch& batch, const __nv_bfloat16* values, int64_t stride, int first_row,
                             int owned, float inverse_scale, uint8_t* head_pages, int64_t page_stride,
                             ValueTile<kHeadDim>& tile) {
  constexpr int kChunks = kHeadDim / 8;
  const int scope = owned + kValueGroup - 1;
  if (threadIdx.x < kValueScope) {
    const int row = static_cast<int>(threadIdx.x);
    Place place = row < scope ? find_place(batch, first_row + row) : Place{-1, 0, 0, 0};
    if (place.position >= 0) {
      const int begin = group_begin(place, row);
      if (begin < 0 || begin >= owned) place.position = -1;  // another CTA's
    }
    tile.places[row] = place;
  }
  __syncthreads();

  int saturated = 0;
  constexpr int kLoads = (kValueScope * kChunks + kThreads - 1) / kThreads;
#pragma unroll 4
  for (int k = 0; k < kLoads; ++k) {
    const int i = k * kThreads + static_cast<int>(threadIdx.x);
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    if (row >= kValueScope || tile.places[row].position < 0) continue;
    float x[8];
    widen8(__ldcs(reinterpret_cast<const uint4*>(values + (first_row + row) * stride) + chunk), x);
    uint2 packed;
    saturated += quantize8(x, inverse_scale, packed);
    *reinterpret_cast<uint2*>(tile.bytes + row * ValueTile<kHeadDim>::kPitch + chunk * 8) = packed;
  }
  __syncthreads();

  for (int row = 0; row < owned; ++row) {
    const Place place = tile.places[row];
    if (place.position < 0 || group_begin(place, row) != row) continue;
    const int slot0 = place.position % kPageTokens / kValueGroup * kValueGroup;  // of the group's aligned 32
    const int begin = place.position % kValueGroup;  // its keys within them: [begin, end)
    const int end = min(kValueGroup, begin + place.end - place.position);
    const bool clear = place.begins_page();
    uint8_t* page = head_pages + place.page * page_stride;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kHeadDim; i += kThreads) {
      const int dim = i / 2;
      const int first = i % 2 * 16;  // of the 16 keys that a thread takes
      const uint8_t* column = tile.bytes + dim;
      auto byte_at = [&](int key) -> uint32_t {
        return key < end ? column[(row + key - begin) * ValueTile<kHeadDim>::kPitch] : 0U;
      };
      if (begin <= first && (end >= first + 16 || clear)) {
        uint32_t words[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          words[c] = byte_at(first + 2 * c) | byte_at(first + 2 * c + 1) << 8 |
                     byte_at(first + 2 * c + 8) << 16 | byte_at(first + 2 * c + 9) << 24;
        }
        *reinterpret_cast<uint4*>(page + value_offset(CacheFormat::fp8, kHeadDim, slot0 + first, dim)) = {
            words[0], words[1], words[2], words[3]};
      } else {
        for (int key = max(begin, first); key < min(end, first + 16); ++key) {
          page[value_offset(CacheFormat::fp8, kHeadDim, slot0 + key, dim)] =
              column[(row + key - begin) * ValueTile<kHeadDim>::kPitch];
        }
      }
      // The group of the sequence's last row clears what is behind it.
      if (!clear || begin + place.end - place.position > kValueGroup) continue;
      for (int slot = slot0 + kValueGroup + first; slot < kPageTokens; slot += kValueGroup) {
        *reinterpret_cast<uint4*>(page + value_offset(CacheFormat::fp8, kHeadDim, slot, dim)) = {0, 0, 0, 0};
      }
    }
  }
  return saturated;
}

}  // namespace kv8::attention::cuda::sm90
