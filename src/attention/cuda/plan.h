// The plan of a step: who works on what, made on the device from the lengths. All layers of a step share it.
//
// Decode: the (sequence, KV head, block of rows) segments lie one behind the other, each as many tiles of
// keys long as it has; every CTA takes the same share of that line, so a share may begin and end inside a
// segment. Prefill: blocks of rows, the ones with most keys first, dealt out one by one through a counter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/cuda/host_device.h"
#include "kv8/attention.h"

namespace kv8::attention::cuda {

struct PlanHeader {
  int32_t decode_tiles;       // length of the line
  int32_t decode_shares;      // of the line, one for each of the first CTAs; never more than tiles
  int32_t prefill_blocks;     // of all sequences, for one KV head
  int32_t heads_per_section;  // KV heads taken together, so that their keys and values stay in the L2
};

struct DecodeSequence {
  int32_t begin;       // its first tile on the line
  int32_t first_tile;  // of positions: 0 unless a window leaves tiles behind
  int32_t tiles;       // of each of its segments; 0: not for decode
  int32_t segments;    // KV heads * blocks of rows, the blocks of one head next to each other
};

// Where a CTA's share begins. The sequence comes along, since a CTA can do nothing before it knows.
struct DecodeStart {
  DecodeSequence here;
  int32_t sequence;
  int32_t segment;  // within the sequence
  int32_t tile;     // within the segment
  int32_t page_table;
};

struct PrefillBlock {
  int32_t sequence;
  int32_t block;  // of rows within the sequence
};

// How a step is cut, from the sizes alone: the same on the host and in the plan's kernel.
struct Partition {
  int multiprocessors;
  int group;           // query heads of a KV head
  int decode_columns;  // rows of a decode segment: 8, 16 or 32
  int decode_ctas;
  int prefill_tokens;  // of a prefill block
  int prefill_blocks;  // bound
};

Partition partition(const PlanParams& params);

// Byte offsets of the parts of a plan.
struct PlanOffsets {
  size_t decode_sequences;
  size_t decode_starts;
  size_t block_begins;  // int32 [sequence_count + 1], prefill blocks before each sequence
  size_t blocks;
  size_t total;
};
PlanOffsets plan_offsets(const PlanParams& params);

// Byte offsets of the parts of a workspace.
struct WorkspaceOffsets {
  size_t prefill_counters;  // uint32 [2]: next item, CTAs done
  size_t decode_arrivals;   // uint32 [decode_ctas][3]
  size_t decode_partials;
  size_t total;
};
WorkspaceOffsets workspace_offsets(const PlanParams& params);

// Parts of a segment that a CTA may have to leave in the workspace: the one its share begins with, the one it
// ends with, and merged groups of parts led by either.
constexpr int kPartialsPerCta = 4;
// Floats of one: for each column a maximum and a sum, then the output [column][dim], dims in V^T's row order.
KV8_HOST_DEVICE constexpr int64_t partial_floats(int head_dim, int columns) {
  return static_cast<int64_t>(columns) * (head_dim + 2);
}

}  // namespace kv8::attention::cuda
