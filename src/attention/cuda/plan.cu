#include <cstdio>

#include "attention/cuda/check.h"
#include "attention/cuda/plan.h"
#include "attention/cuda/sm90/shapes.h"

namespace kv8::attention::cuda {

namespace {

constexpr int kThreads = 1024;
constexpr int kBuckets = 1024;
// Keys and values that are read again and again by the row blocks of a head should stay in the L2 (60 MB, of
// which other traffic wants a share).
constexpr int64_t kL2Budget = 36 << 20;

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

struct PlanKernelParams {
  Batch batch;
  Partition cut;
  int kv_heads;
  int64_t tile_bytes;  // of one KV head
  int64_t window;
  int max_decode_rows;
  PlanHeader* header;
  DecodeSequence* decode_sequences;
  DecodeStart* decode_starts;
  int32_t* block_begins;
  PrefillBlock* blocks;
};

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

__global__ void __launch_bounds__(kThreads) plan_kernel(PlanKernelParams p) {
  __shared__ int histogram[kBuckets];
  __shared__ int most_tiles;
  __shared__ unsigned long long prefill_tiles;
  const int thread = threadIdx.x;
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

int multiprocessors() {
  int device = 0;
  int count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  return count;
}

}  // namespace

Partition partition(const PlanParams& params) {
  Partition cut;
  cut.group = params.q_heads / params.kv_heads;
  cut.decode_columns = sm90::decode_columns(params.head_dim, cut.group * params.max_decode_rows);
  cut.multiprocessors = multiprocessors();
  cut.decode_ctas = cut.multiprocessors * sm90::decode_ctas_per_multiprocessor(params.head_dim);
  cut.prefill_tokens = sm90::prefill_warpgroups(params.head_dim) * (sm90::kPrefillRows / cut.group);
  cut.prefill_blocks = params.batch.rows / cut.prefill_tokens + params.batch.sequence_count;
  return cut;
}

PlanOffsets plan_offsets(const PlanParams& params) {
  const Partition cut = partition(params);
  const auto sequences = static_cast<size_t>(params.batch.sequence_count);
  PlanOffsets at;
  at.decode_sequences = aligned(sizeof(PlanHeader));
  at.decode_starts = at.decode_sequences + aligned(sequences * sizeof(DecodeSequence));
  at.block_begins = at.decode_starts + aligned(static_cast<size_t>(cut.decode_ctas) * sizeof(DecodeStart));
  at.blocks = at.block_begins + aligned((sequences + 1) * sizeof(int32_t));
  at.total = at.blocks + aligned(static_cast<size_t>(cut.prefill_blocks) * sizeof(PrefillBlock));
  return at;
}

WorkspaceOffsets workspace_offsets(const PlanParams& params) {
  const Partition cut = partition(params);
  const auto ctas = static_cast<size_t>(cut.decode_ctas);
  WorkspaceOffsets at;
  at.prefill_counters = 0;
  at.decode_arrivals = 256;
  at.decode_partials = at.decode_arrivals + aligned(ctas * 3 * sizeof(uint32_t));
  at.total =
      at.decode_partials +
      ctas * kPartialsPerCta *
          aligned(static_cast<size_t>(partial_floats(params.head_dim, cut.decode_columns)) * sizeof(float));
  return at;
}

size_t plan_bytes(const PlanParams& params) {
  return check_plan(params) ? plan_offsets(params).total : 0;
}

size_t workspace_bytes(const PlanParams& params) {
  return check_plan(params) ? workspace_offsets(params).total : 0;
}

Status make_plan(const PlanParams& params, void* plan, cudaStream_t stream) {
  if (Status status = check_plan(params); !status) return status;
  if (plan == nullptr) return invalid_argument("make_plan: plan is null");
  const PlanOffsets at = plan_offsets(params);
  auto* bytes = static_cast<uint8_t*>(plan);
  PlanKernelParams kernel;
  kernel.batch = params.batch;
  kernel.cut = partition(params);
  kernel.kv_heads = params.kv_heads;
  kernel.tile_bytes = head_bytes(params.head_dim);
  kernel.window = params.window;
  kernel.max_decode_rows = params.max_decode_rows;
  kernel.header = reinterpret_cast<PlanHeader*>(bytes);
  kernel.decode_sequences = reinterpret_cast<DecodeSequence*>(bytes + at.decode_sequences);
  kernel.decode_starts = reinterpret_cast<DecodeStart*>(bytes + at.decode_starts);
  kernel.block_begins = reinterpret_cast<int32_t*>(bytes + at.block_begins);
  kernel.blocks = reinterpret_cast<PrefillBlock*>(bytes + at.blocks);
  plan_kernel<<<1, kThreads, 0, stream>>>(kernel);
  return launch_status("plan_kernel");
}

}  // namespace kv8::attention::cuda
