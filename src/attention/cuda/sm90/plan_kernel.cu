// The kernel that makes a step's plan from the lengths in device memory: one CTA, a few microseconds.
#include "attention/cuda/ptx/barrier.cuh"
#include "attention/cuda/sm90/launch.h"
#include "attention/cuda/sm90/plan_kernel.h"

namespace kv8::attention::cuda::sm90 {

namespace {

constexpr int kThreads = 1024;
constexpr int kBuckets = 1024;
// Keys and values that are read again and again by the row blocks of a head should stay in the L2 (60 MB, of
// which other traffic wants a share).
constexpr int64_t kL2Budget = 36 << 20;

// Tiles that rows [first, first + count) of positions see.
struct TileRange {
  int first;
  int count;
};
__device__ TileRange visible_tiles(int64_t window, int first_position, int rows) {
  int64_t oldest = window > 0 ? max(int64_t{0}, first_position - window + 1) : 0;
  int first = static_cast<int>(oldest / kPageTokens);
  return {first, (first_position + rows - 1) / kPageTokens - first + 1};
}

// Exclusive prefix sum over the block of a pair; *total is the sum over all threads.
__device__ int2 exclusive_scan(int2 value, int2* total) {
  __shared__ int2 warp_sums[kThreads / 32];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int2 sum = value;
  for (int step = 1; step < 32; step *= 2) {
    int x = __shfl_up_sync(~0U, sum.x, step);
    int y = __shfl_up_sync(~0U, sum.y, step);
    if (lane >= step) sum = {sum.x + x, sum.y + y};
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  int2 before = {0, 0};
  int2 all = {0, 0};
  for (int i = 0; i < kThreads / 32; ++i) {
    if (i < warp) before = {before.x + warp_sums[i].x, before.y + warp_sums[i].y};
    all = {all.x + warp_sums[i].x, all.y + warp_sums[i].y};
  }
  __syncthreads();
  *total = all;
  return {before.x + sum.x - value.x, before.y + sum.y - value.y};
}

// The last index in [0, count) whose begin is at most `value`.
template <class Begin>
__device__ int last_at_most(int count, int value, Begin begin) {
  int low = 0;
  int high = count;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (begin(middle) <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) plan_kernel(const __grid_constant__ PlanKernelParams p) {
  __shared__ int histogram[kBuckets];
  __shared__ int most_tiles;
  __shared__ unsigned long long prefill_tiles;
  const int thread = threadIdx.x;
  ptx::launch_dependents();
  ptx::dependency_wait();
  histogram[thread] = 0;
  if (thread == 0) {
    most_tiles = 0;
    prefill_tiles = 0;
  }
  __syncthreads();

  int2 before = {0, 0};  // decode tiles, prefill blocks
  for (int base = 0; base < p.batch.sequence_count; base += kThreads) {
    const int i = base + thread;
    DecodeSequence decode = {0, 0, 0, 0};
    int blocks = 0;
    if (i < p.batch.sequence_count) {
      const Sequence sequence = p.batch.sequences[i];
      if (sequence.row_count > 0) {
        const TileRange tiles = visible_tiles(p.window, sequence.first_position, sequence.row_count);
        if (sequence.row_count <= p.max_decode_rows) {
          const int row_blocks =
              (sequence.row_count * p.cut.group + p.cut.decode_columns - 1) / p.cut.decode_columns;
          decode = {0, tiles.first, tiles.count, p.kv_heads * row_blocks};
        } else {
          blocks = (sequence.row_count + p.cut.prefill_tokens - 1) / p.cut.prefill_tokens;
          atomicMax(&most_tiles, tiles.count);
          atomicAdd(&prefill_tiles, static_cast<unsigned long long>(tiles.count));
        }
      }
    }
    int2 total;
    const int2 sum = exclusive_scan({decode.tiles * decode.segments, blocks}, &total);
    if (i < p.batch.sequence_count) {
      decode.begin = before.x + sum.x;
      p.decode_sequences[i] = decode;
      p.block_begins[i] = before.y + sum.y;
    }
    before = {before.x + total.x, before.y + total.y};
  }
  __syncthreads();

  if (thread == 0) {
    const int64_t head_total = static_cast<int64_t>(prefill_tiles) * p.tile_bytes;
    int heads = p.kv_heads;
    while (heads > 1 && (p.kv_heads % heads != 0 || heads * head_total > kL2Budget)) --heads;
    *p.header = {before.x, min(p.cut.decode_ctas, before.x), before.y, heads};
  }

  const int shares = min(p.cut.decode_ctas, before.x);
  for (int cta = thread; cta < shares; cta += kThreads) {
    const int first = static_cast<int>(static_cast<int64_t>(cta) * before.x / shares);
    const int i =
        last_at_most(p.batch.sequence_count, first, [&](int s) { return p.decode_sequences[s].begin; });
    const DecodeSequence here = p.decode_sequences[i];
    const int offset = first - here.begin;
    p.decode_starts[cta] = {here, i, offset / here.tiles, offset % here.tiles,
                            p.batch.sequences[i].page_table};
  }

  // Prefill blocks by falling number of tiles: a counting sort. The order within a bucket is left to chance;
  // the results don't depend on it.
  auto block_of = [&](int item, int* bucket) {
    const int s = last_at_most(p.batch.sequence_count, item, [&](int i) { return p.block_begins[i]; });
    const Sequence sequence = p.batch.sequences[s];
    const PrefillBlock block = {s, item - p.block_begins[s]};
    const int row = block.block * p.cut.prefill_tokens;
    const int rows = min(p.cut.prefill_tokens, sequence.row_count - row);
    const int tiles = visible_tiles(p.window, sequence.first_position + row, rows).count;
    *bucket =
        kBuckets - 1 -
        static_cast<int>(static_cast<int64_t>(min(tiles, most_tiles)) * (kBuckets - 1) / max(most_tiles, 1));
    return block;
  };
  for (int item = thread; item < before.y; item += kThreads) {
    int bucket;
    block_of(item, &bucket);
    atomicAdd(&histogram[bucket], 1);
  }
  __syncthreads();
  int2 unused;
  const int begin = exclusive_scan({histogram[thread], 0}, &unused).x;
  histogram[thread] = begin;
  __syncthreads();
  for (int item = thread; item < before.y; item += kThreads) {
    int bucket;
    const PrefillBlock block = block_of(item, &bucket);
    p.blocks[atomicAdd(&histogram[bucket], 1)] = block;
  }
}

}  // namespace

cudaError_t launch_plan(const PlanKernelParams& params, cudaStream_t stream) {
  return launch(plan_kernel, {dim3(1), kThreads, 0}, stream, params);
}

}  // namespace kv8::attention::cuda::sm90
