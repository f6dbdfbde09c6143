// Where a row of the step stands, and where its keys and values go.
#pragma once

#include "kv8/attention.h"

namespace kv8::attention::cuda::sm90 {

struct Place {
  int position;  // negative: a row of no sequence
  int first;     // position of the sequence's first row in this step
  int end;       // one past its last
  int page;

  // Whether this step writes the first token of the position's page: then what lies in the page behind the
  // last token must be cleared, since 0 * NaN is NaN.
  __device__ bool begins_page() const { return position / kPageTokens * kPageTokens >= first; }
};

// All threads that are given the same row do the same loads.
__device__ inline Place find_place(const Batch& batch, int row) {
  if (row >= batch.rows) return {-1, 0, 0, 0};
  // In a step of decode tokens alone, row i is that of sequence i: one load.
  int low = min(row, batch.sequence_count - 1);
  Sequence sequence = batch.sequences[low];
  auto covers = [&] { return sequence.row_begin <= row && row - sequence.row_begin < sequence.row_count; };
  if (!covers()) {
    low = 0;
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
    sequence = batch.sequences[low];
    while (low > 0 && sequence.row_count == 0) sequence = batch.sequences[--low];
    if (!covers()) return {-1, 0, 0, 0};
  }
  const int position = sequence.first_position + row - sequence.row_begin;
  const int page = batch.page_tables[sequence.page_table * batch.page_table_stride + position / kPageTokens];
  return {position, sequence.first_position, sequence.first_position + sequence.row_count, page};
}

}  // namespace kv8::attention::cuda::sm90
