// A CTA's way along the plan's line of tiles, segment by segment. Every role of the decode kernel walks it
// alike.
#pragma once

#include "attention/cuda/sm90/kernel_params.h"

namespace kv8::attention::cuda::sm90 {

// The part of a segment (rows of one sequence and KV head) that lies in this CTA's share.
struct DecodeSegment {
  int sequence;
  int page_table;
  int head;  // KV head
  int row_block;
  int position_tile;  // of the part's first tile: its keys begin at position_tile * kPageTokens
  int count;          // tiles of the part
  int tiles;          // tiles of the whole segment
  int begin;          // the segment's first tile on the line
  bool at_share_begin;
};

class DecodeWalk {
 public:
  __device__ explicit DecodeWalk(const KernelParams& p) : p_(p) {
    const PlanHeader header = *p.plan;
    const DecodeStart start =
        p.decode_starts[blockIdx.x];  // at the same time; without meaning beyond the shares
    total_ = header.decode_tiles;
    shares_ = header.decode_shares;
    if (static_cast<int>(blockIdx.x) >= shares_) return;
    left_ = share_begin(blockIdx.x + 1) - share_begin(blockIdx.x);
    here_ = start.here;
    sequence_ = start.sequence;
    index_ = start.segment;
    tile_ = start.tile;
    page_table_ = start.page_table;
  }

  __device__ bool next(DecodeSegment& segment) {
    if (left_ == 0) return false;
    while (index_ >= here_.segments) {  // also those that take no part
      index_ = 0;
      here_ = p_.decode_sequences[++sequence_];
      page_table_ = p_.sequences[sequence_].page_table;
    }
    const int row_blocks = here_.segments / p_.kv_heads;
    segment.sequence = sequence_;
    segment.page_table = page_table_;
    segment.head = index_ / row_blocks;
    segment.row_block = index_ % row_blocks;
    segment.position_tile = here_.first_tile + tile_;
    segment.count = min(left_, here_.tiles - tile_);
    segment.tiles = here_.tiles;
    segment.begin = here_.begin + index_ * here_.tiles;
    segment.at_share_begin = at_begin_;
    left_ -= segment.count;
    ++index_;
    tile_ = 0;
    at_begin_ = false;
    return true;
  }

  // The CTA in whose share a tile of the line lies.
  __device__ int owner(int tile) const {
    return static_cast<int>(((static_cast<int64_t>(tile) + 1) * shares_ - 1) / total_);
  }
  __device__ int share_begin(int cta) const {
    return static_cast<int>(static_cast<int64_t>(cta) * total_ / shares_);
  }

 private:
  const KernelParams& p_;
  DecodeSequence here_ = {0, 0, 0, 0};
  int total_;
  int shares_;
  int left_ = 0;
  int sequence_ = 0;
  int page_table_ = 0;
  int index_ = 0;  // segment within the sequence
  int tile_ = 0;   // within the segment
  bool at_begin_ = true;
};

}  // namespace kv8::attention::cuda::sm90
