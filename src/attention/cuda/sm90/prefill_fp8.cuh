// The FP8 prefill kernel. docs/kernels.md explains it; in short:
//
// A row is a (token, head of the group): all rows of a CTA share a KV head, its keys and its values. Two or
// three warpgroups of 64 rows compute, each by itself, on the same tiles, so that one's exponentials run
// beside another's products. A further warpgroup feeds them: its first warp takes blocks of rows from the
// counter and brings tiles, one bulk copy each; each other warp brings Q to one of the warpgroups, a block
// ahead.
#pragma once

#include <cuda_bf16.h>

#include "attention/cuda/sm90/launch.h"
#include "attention/cuda/sm90/prefill_fp8.h"
#include "attention/cuda/sm90/prefill_tile.cuh"

namespace kv8::attention::cuda::sm90 {

// A block of rows to work on, as the producer hands it out. Tiles run from last_tile down.
struct PrefillItem {
  int row_begin;
  int row_count;
  int first_position;
  int first_token;  // of the block, within the sequence
  int head;         // KV head; negative: no more work
  int first_tile;
  int last_tile;
  int unused;
};

template <int kHeadDim>
struct PrefillShared {
  static constexpr int kWarpgroups = prefill_warpgroups(CacheFormat::fp8, kHeadDim);
  static constexpr int kStages = prefill_stages(kHeadDim);
  static constexpr int kTileBytes = 2 * kPageTokens * kHeadDim;
  static constexpr int kStageBytes = kTileBytes + 1024;  // V^T's rows, then 8 rows of ones
  static constexpr int kQBytes = kPrefillRows * kHeadDim;

  static constexpr int kQ = kStages * kStageBytes;                // [2 slots][warpgroups]
  static constexpr int kScales = kQ + 2 * kWarpgroups * kQBytes;  // float [2][warpgroups][64]
  // Of every consumer thread, for its two rows: {weight of the tile, sum}, and the reference. These 6 numbers
  // would not fit into the registers.
  static constexpr int kSums = kScales + 2 * kWarpgroups * kPrefillRows * 4;  // float4 [threads]
  static constexpr int kReferences = kSums + kWarpgroups * 128 * 16;          // float2 [threads]
  static constexpr int kItems = kReferences + kWarpgroups * 128 * 8;          // PrefillItem [2]
  static constexpr int kBarriers = kItems + 2 * static_cast<int>(sizeof(PrefillItem));
  static constexpr int kTotal = kBarriers + (2 * kStages + 6) * 8;
  static_assert(kTotal <= 227 * 1024);
};

// A score (in natural units) beyond this is recomputed: the tensor core's adder makes it up to 6e-4 too small
// (docs/kernels.md), so that the weight's relative error stays within 6 * 6e-4.
constexpr float kExactScore = 6.0F * kLog2e;
// Unless its tile's weight is below 2^-20 of what the row has seen.
constexpr float kNegligible = 20.0F;
// The exponent that outputs refer to moves only when a maximum passes it by this much: multiplying the
// outputs is then rare, and as float32 has exponents to spare the results are the same.
constexpr float kSlack = 8.0F;

template <int kHeadDim>
class PrefillProducer {
  using Shared = PrefillShared<kHeadDim>;

 public:
  __device__ PrefillProducer(const KernelParams& p, uint32_t base, PrefillItem* items)
      : p_(p),
        base_(base),
        tile_full_(base + Shared::kBarriers),
        tile_empty_(tile_full_ + Shared::kStages * 8),
        item_full_(tile_empty_ + Shared::kStages * 8),
        q_empty_(item_full_ + 32),
        items_(items) {}

  // One thread.
  __device__ void run() {
    const int blocks = p_.plan->prefill_blocks;
    const int heads_together = p_.plan->heads_per_section;
    const int total = blocks * p_.kv_heads;
    const int tokens = kPrefillRows / p_.group * Shared::kWarpgroups;
    int stage = 0;
    uint32_t parity = 1;
#pragma unroll 1
    for (uint32_t n = 0;; ++n) {
      const uint32_t slot = n & 1;
      ptx::barrier_wait(q_empty_ + slot * 8, (n >> 1 & 1) ^ 1);
      const int next = static_cast<int>(atomicAdd(p_.prefill_counters, 1U));
      if (next >= total) {
        items_[slot].head = -1;
        ptx::barrier_arrive(item_full_ + slot * 8);
        break;
      }
      const int section = next / (blocks * heads_together);
      const int within = next - section * blocks * heads_together;
      const PrefillBlock block = p_.prefill_blocks[within / heads_together];
      const Sequence sequence = p_.sequences[block.sequence];
      const int head = section * heads_together + within % heads_together;
      const int first_token = block.block * tokens;
      const int last_token = min(first_token + tokens, sequence.row_count) - 1;
      const int first_tile = max(sequence.first_position + first_token - (p_.window - 1), 0) / kPageTokens;
      int tile = (sequence.first_position + last_token) / kPageTokens;
      items_[slot] = {sequence.row_begin,
                      sequence.row_count,
                      sequence.first_position,
                      first_token,
                      head,
                      first_tile,
                      tile,
                      0};
      ptx::barrier_arrive(item_full_ + slot * 8);

      const int32_t* pages = p_.page_tables + sequence.page_table * p_.page_table_stride;
      const uint8_t* pool = p_.pool + head * p_.head_stride;
      int32_t page = pages[tile];
#pragma unroll 1
      for (;; --tile) {
        const uint8_t* source = pool + page * p_.page_stride;
        if (tile > first_tile) page = pages[tile - 1];
        ptx::barrier_wait(tile_empty_ + stage * 8, parity);
        ptx::barrier_arrive_expect(tile_full_ + stage * 8, Shared::kTileBytes);
        ptx::bulk_copy(base_ + stage * Shared::kStageBytes, source, Shared::kTileBytes,
                       tile_full_ + stage * 8);
        if (++stage == Shared::kStages) {
          stage = 0;
          parity ^= 1;
        }
        if (tile == first_tile) break;
      }
    }
    // The CTA that is done last leaves the counters as it found them.
    __threadfence();
    if (atomicInc(p_.prefill_counters + 1, gridDim.x - 1) == gridDim.x - 1) p_.prefill_counters[0] = 0;
  }

  // One warp, for one of the warpgroups: its rows of Q, and what a unit of q.k is in scores for each.
  __device__ void bring_queries(int warpgroup, uint8_t* shared) {
    const int lane = threadIdx.x % 32;
    const uint32_t q_full = item_full_ + 16;
#pragma unroll 1
    for (uint32_t n = 0;; ++n) {
      const uint32_t slot = n & 1;
      ptx::barrier_wait(item_full_ + slot * 8, n >> 1 & 1);
      const PrefillItem item = items_[slot];
      if (item.head >= 0) {
        const int tokens = kPrefillRows / p_.group;
        const int first_token = item.first_token + warpgroup * tokens;
        const int rows = min(tokens, item.row_count - first_token) * p_.group;
        const int64_t first =
            static_cast<int64_t>(item.row_begin + first_token) * p_.q_heads + item.head * p_.group;
        const uint32_t image =
            base_ + Shared::kQ + (slot * Shared::kWarpgroups + warpgroup) * Shared::kQBytes;
        auto* scales = reinterpret_cast<float*>(shared + Shared::kScales) +
                       (slot * Shared::kWarpgroups + warpgroup) * kPrefillRows;
        const float unit = (p_.k_scale != nullptr ? p_.k_scale[item.head] : 1.0F) * p_.score_scale;
        constexpr int kChunks = kHeadDim / 16;
#pragma unroll 1
        for (int i = lane; i < kPrefillRows * kChunks; i += 32) {
          const int row = i / kChunks;
          const int chunk = i % kChunks;
          const int64_t index = first + row / p_.group * p_.q_heads + row % p_.group;
          const bool valid = row < rows;
          ptx::async_copy16(
              image + row_image_offset(CacheFormat::fp8, kHeadDim, kPrefillRows, row, chunk * 16),
              static_cast<const uint8_t*>(p_.q) + (valid ? index * kHeadDim + chunk * 16 : 0), valid);
        }
#pragma unroll 1
        for (int row = lane; row < kPrefillRows; row += 32) {
          const int64_t index = first + row / p_.group * p_.q_heads + row % p_.group;
          scales[row] = row < rows ? p_.q_scale[index] * unit : 1.0F;
        }
        ptx::async_copy_wait();
        ptx::async_proxy_fence();
      }
      ptx::barrier_arrive(q_full + slot * 8);  // every lane for what it wrote
      if (item.head < 0) break;
    }
  }

 private:
  const KernelParams& p_;
  uint32_t base_;
  uint32_t tile_full_;
  uint32_t tile_empty_;
  uint32_t item_full_;
  uint32_t q_empty_;
  PrefillItem* items_;
};

template <int kHeadDim>
__device__ __forceinline__ void consume_prefill(const KernelParams& p, uint8_t* shared, int warpgroup) {
  using Shared = PrefillShared<kHeadDim>;
  using QOperand = ptx::Descriptor<kHeadDim == 64 ? 64 : 128>;
  constexpr uint32_t kStages = Shared::kStages;
  const uint32_t base = ptx::shared_address(shared);
  const uint32_t tile_full = base + Shared::kBarriers;
  const uint32_t tile_empty = tile_full + kStages * 8;
  const uint32_t q_full = tile_empty + kStages * 8 + 16;
  const uint32_t q_empty = q_full + 16;
  // Registers are short: what is cheap to find again is read again from here (hence volatile) and not kept.
  auto* items = reinterpret_cast<volatile PrefillItem*>(shared + Shared::kItems);
  const int warp = threadIdx.x / 32 % 4;
  const int lane = threadIdx.x % 32;
  const uint32_t sums = base + Shared::kSums + threadIdx.x * 16;
  const uint32_t references = base + Shared::kReferences + threadIdx.x * 8;

  uint32_t taken = 0;  // tiles so far: their stage and the parity of its barrier follow
  auto wait_for = [&](uint32_t count) {
    ptx::barrier_wait(tile_full + count % kStages * 8, count / kStages & 1);
  };
  auto release = [&] {
    // Each lane waits for the tile by itself: none may still be waiting when its stage is filled again.
    __syncwarp();
    if (lane == 0) ptx::barrier_arrive(tile_empty + taken % kStages * 8);
    ++taken;
  };

#pragma unroll 1
  for (uint32_t n = 0;; ++n) {
    ptx::barrier_wait(q_full + (n & 1) * 8, n >> 1 & 1);
    volatile PrefillItem& item = items[n & 1];
    if (item.head < 0) break;
    auto tokens = [&] { return kPrefillRows / p.group; };
    auto first_position = [&] { return item.first_position + item.first_token + warpgroup * tokens(); };
    auto end_position = [&] { return item.first_position + item.row_count; };

    int tile = item.last_tile;
    {  // tiles that only other warpgroups see
      const int first = first_position();
      const int last = min(first + tokens(), end_position()) - 1;
      const int own_last = last < first ? item.first_tile - 1 : last / kPageTokens;
#pragma unroll 1
      for (; tile > own_last; --tile) {
        wait_for(taken);
        release();
      }
    }

    float output[kHeadDim / 2];
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) output[i] = 0.0F;
    // Outputs and sums are in units of 2^reference.
    ptx::shared_store2(references, {kNothing, kNothing});
    ptx::shared_store2(sums + 8, {0.0F, 0.0F});
    float x[kScores];
    if (tile >= item.first_tile) wait_for(taken);

#pragma unroll 1
    for (; tile >= item.first_tile; --tile) {
      auto q_image = [&] {
        uint32_t slot = n;
        asm volatile("" : "+r"(slot));  // not to be kept in a register from before the loop
        return base + Shared::kQ + ((slot & 1) * Shared::kWarpgroups + warpgroup) * Shared::kQBytes;
      };
      auto scales = [&] {
        uint32_t slot = n;
        asm volatile("" : "+r"(slot));
        const uint32_t row =
            ((slot & 1) * Shared::kWarpgroups + warpgroup) * kPrefillRows + warp * 16 + lane / 4;
        return ptx::shared_load2(base + Shared::kScales + row * 4, 32);
      };
      auto mask = [&] {
        const int first = first_position();
        const int key = tile * kPageTokens;
        if (key + kPageTokens - 1 > first || min(first + tokens(), end_position()) - 1 - key >= p.window) {
          const int row = warp * 16 + lane / 4;
          const int last = end_position() - 1;
          const int2 newest = {min(first + row / p.group, last) - key,
                               min(first + (row + 8) / p.group, last) - key};
          mask_tile(x, newest, {newest.x - p.window, newest.y - p.window});
        }
      };

      // Opaque to the compiler, which would otherwise keep a descriptor for every step in registers.
      uint32_t k = QOperand::low(base + taken % kStages * Shared::kStageBytes);
      asm volatile("" : "+r"(k));
      tile_scores<kHeadDim>(x, QOperand::low(q_image()), k);
      mask();
      float2 top = row_maxima(x);
      float2 scale = scales();
      top = {fmaxf(top.x * scale.x, kNothing), fmaxf(top.y * scale.y, kNothing)};

      float2 reference = ptx::shared_load2(references);
      // One vote for all that is rare.
      auto large = [](float value, float seen) {
        return fabsf(value) > kExactScore && value > seen - kNegligible;
      };
      const bool inexact = large(top.x, reference.x) || large(top.y, reference.y);
      const bool higher = top.x > reference.x + kSlack || top.y > reference.y + kSlack;
      if (__any_sync(~0U, inexact || higher || p.soft_cap != 0.0F)) {
        if (__any_sync(~0U, inexact)) {
          exact_tile_scores<kHeadDim>(x, q_image(), base + taken % kStages * Shared::kStageBytes);
          mask();
          top = row_maxima(x);
          scale = scales();
          top = {fmaxf(top.x * scale.x, kNothing), fmaxf(top.y * scale.y, kNothing)};
        }
        if (p.soft_cap != 0.0F) {  // it is monotonic: the maximum's place stays
          soft_cap_tile(x, scale, p.soft_cap, p.inverse_soft_cap);
          top = {soft_cap_score(top.x, p.soft_cap, p.inverse_soft_cap),
                 soft_cap_score(top.y, p.soft_cap, p.inverse_soft_cap)};
          scale = {1.0F, 1.0F};
        }
        const float2 next = {top.x > reference.x + kSlack ? top.x : reference.x,
                             top.y > reference.y + kSlack ? top.y : reference.y};
        const float2 factor = {ptx::exp2_approx(reference.x - next.x),
                               ptx::exp2_approx(reference.y - next.y)};
        reference = next;
        ptx::shared_store2(references, next);
        const float2 sum = ptx::shared_load2(sums + 8);
        ptx::shared_store2(sums + 8, {sum.x * factor.x, sum.y * factor.y});
#pragma unroll
        for (int i = 0; i < kHeadDim / 2; ++i) output[i] *= i & 2 ? factor.y : factor.x;
      }
      ptx::shared_store2(sums,
                         {ptx::exp2_approx(top.x - reference.x), ptx::exp2_approx(top.y - reference.y)});
      uint32_t packed[16];
      tile_probabilities(x, scale, {kProbabilityExponent - top.x, kProbabilityExponent - top.y}, packed);

      auto finish = [&](float(&product)[kScores], float* ones, float* target) {
        if (tile > item.first_tile) wait_for(taken + 1);  // the next tile, while the product runs
        ptx::wgmma_wait<0>();
        constexpr int kCount = kHeadDim == 64 ? 32 : 64;
        hold_first<kCount>(product);
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(ones[i])::"memory");
        release();
        const float4 state = ptx::shared_load4(sums);
        add_tile<kCount>(target, product, {state.x, state.y});
        ptx::shared_store2(sums + 8, {fmaf(ones[0], state.x, state.z), fmaf(ones[2], state.y, state.w)});
      };
      uint32_t v =
          ptx::Descriptor<128>::low(base + taken % kStages * Shared::kStageBytes + kPageTokens * kHeadDim);
      asm volatile("" : "+r"(v));
      if constexpr (kHeadDim == 256) {  // two halves of the dims, one after the other in the same registers
        start_tile_product<128>(x, packed, v);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        hold_first<64>(x);
        add_tile<64>(output, x, ptx::shared_load2(sums));
        float ones[4] = {};
        start_tile_product<128>(x, packed, v + (128 * 128 >> 4));
        start_tile_product<8>(ones, packed, v + (256 * 128 >> 4));
        ptx::wgmma_commit();
        finish(x, ones, output + 64);
      } else {  // the sum of P comes as 8 columns more
        start_tile_product<kHeadDim + 8>(x, packed, v);
        ptx::wgmma_commit();
        finish(x, x + kHeadDim / 2, output);
      }
    }

    const float2 reference = ptx::shared_load2(references);
    const float2 sum = ptx::shared_load2(sums + 8);
    // V^T's rows are permuted so that a thread has 8 neighbouring dims of each 32.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = warp * 16 + lane / 4 + half * 8;
      const int token = item.first_token + warpgroup * tokens() + row / p.group;
      if (row >= tokens() * p.group || token >= item.row_count) continue;
      const int query_head = item.head * p.group + row % p.group;
      float total = half == 0 ? sum.x : sum.y;
      if (p.sinks != nullptr) {
        total += ptx::exp2_approx(p.sinks[query_head] * kLog2e - (half == 0 ? reference.x : reference.y) +
                                  kProbabilityExponent);
      }
      const float factor = (p.v_scale != nullptr ? p.v_scale[item.head] : 1.0F) / total;
      const int64_t at =
          (static_cast<int64_t>(item.row_begin + token) * p.q_heads + query_head) * kHeadDim + lane % 4 * 8;
#pragma unroll
      for (int block = 0; block < kHeadDim / 32; ++block) {
        float y[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) y[i] = output[16 * block + i / 2 * 4 + half * 2 + i % 2] * factor;
        if (p.out_f32) {
          auto* target = reinterpret_cast<float4*>(static_cast<float*>(p.out) + at + block * 32);
          target[0] = {y[0], y[1], y[2], y[3]};
          target[1] = {y[4], y[5], y[6], y[7]};
        } else {
          __nv_bfloat162 pairs[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(y[2 * i], y[2 * i + 1]);
          *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.out) + at + block * 32) =
              *reinterpret_cast<uint4*>(pairs);
        }
      }
    }
    __syncwarp();
    if (lane == 0) ptx::barrier_arrive(q_empty + (n & 1) * 8);
  }
}

template <int kHeadDim>
__global__ void __launch_bounds__((prefill_warpgroups(CacheFormat::fp8, kHeadDim) + 1) * 128, 1)
    prefill_fp8_kernel(const __grid_constant__ KernelParams p) {
  using Shared = PrefillShared<kHeadDim>;
  constexpr int kWarpgroups = Shared::kWarpgroups;
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t base = ptx::shared_address(shared);
  if (threadIdx.x == 0) {
    const uint32_t barriers = base + Shared::kBarriers;
    for (int i = 0; i < Shared::kStages; ++i) {
      ptx::barrier_init(barriers + i * 8, 1);                                    // tile full
      ptx::barrier_init(barriers + (Shared::kStages + i) * 8, kWarpgroups * 4);  // tile empty
    }
    for (int i = 0; i < 2; ++i) {
      const uint32_t rest = barriers + 2 * Shared::kStages * 8 + i * 8;
      ptx::barrier_init(rest, 1);                      // item full
      ptx::barrier_init(rest + 16, kWarpgroups * 32);  // Q full
      ptx::barrier_init(rest + 32, kWarpgroups * 4);   // Q empty
    }
    ptx::barrier_init_fence();
  }
  for (int i = threadIdx.x; i < Shared::kStages * 64; i += blockDim.x) {
    reinterpret_cast<uint4*>(shared + i / 64 * Shared::kStageBytes + Shared::kTileBytes)[i % 64] = {
        0x38383838U, 0x38383838U, 0x38383838U, 0x38383838U};
  }
  ptx::async_proxy_fence();
  __syncthreads();
  ptx::launch_dependents();
  ptx::dependency_wait();

  // Registers go to where they are needed. Together they must not exceed what the launch gave, 168 for each
  // of 384 threads or 128 for each of 512, or the kernel waits for ever.
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == kWarpgroups) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kWarpgroups == 2 ? 40 : 32));
    PrefillProducer<kHeadDim> producer(p, base, reinterpret_cast<PrefillItem*>(shared + Shared::kItems));
    const int warp = threadIdx.x / 32 % 4;
    if (warp == 0) {
      if (threadIdx.x % 32 == 0) producer.run();
    } else if (warp <= kWarpgroups) {
      producer.bring_queries(warp - 1, shared);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kWarpgroups == 2 ? 232 : 160));
    consume_prefill<kHeadDim>(p, shared, warpgroup);
  }
}

template <int kHeadDim>
cudaError_t launch_prefill_fp8(const KernelParams& params, int ctas, cudaStream_t stream) {
  return launch(prefill_fp8_kernel<kHeadDim>,
                {dim3(static_cast<unsigned>(ctas)), (PrefillShared<kHeadDim>::kWarpgroups + 1) * 128,
                 PrefillShared<kHeadDim>::kTotal},
                stream, params);
}

}  // namespace kv8::attention::cuda::sm90
