// Where a byte of K or V lies in a page, the same on host and device. docs/kernels.md draws it. All images
// lie as wgmma wants to find them in shared memory, swizzle included, so that one bulk copy brings them and
// nothing is rearranged.
//
// FP8. K of a head: rows of tokens, head_dim bytes each; at head_dim 256 the two halves of the dims are two
// images, one after the other. Behind it V transposed: rows of dims, 128 token positions each, because 8-bit
// operands must have K (here: keys) contiguous.
//
// BF16. K and V of a head alike: rows of tokens, in images of 64 dims (128 rows of 128 bytes, 16 KiB), one
// after the other; V behind K. K is an operand with K contiguous; V as it lies is one with M or N (here:
// dims) contiguous, which 16-bit operands may have (the transpose bit of wgmma). Neither is permuted.
#pragma once

#include <cstdint>

#include "attention/cuda/host_device.h"
#include "kv8/attention.h"

namespace kv8::attention::cuda {

// A row of 128 bytes under the 128-byte swizzle: its 16-byte chunks are permuted by the row's number.
KV8_HOST_DEVICE constexpr int swizzle128(int row, int byte) {
  return row * 128 + ((byte / 16) ^ (row % 8)) * 16 + byte % 16;
}
// Rows of 64 bytes, two to a line of 128, under the 64-byte swizzle.
KV8_HOST_DEVICE constexpr int swizzle64(int row, int byte) {
  return row * 64 + ((byte / 16) ^ (row / 2 % 4)) * 16 + byte % 16;
}

// Byte of (row, dim) in the image of `rows` rows of head_dim numbers: K of a page (rows = 128), and Q in
// shared memory; BF16: V of a page too.
KV8_HOST_DEVICE constexpr int row_image_offset(CacheFormat format, int head_dim, int rows, int row, int dim) {
  if (format == CacheFormat::bf16) return dim / 64 * rows * 128 + swizzle128(row, dim % 64 * 2);
  return head_dim == 64 ? swizzle64(row, dim) : dim / 128 * rows * 128 + swizzle128(row, dim % 128);
}

// The position of a key in the rows of an FP8 V^T: within 32 keys, such that the scores of wgmma's first
// product, turned to e4m3, are the registers of the second product's left operand as they stand.
KV8_HOST_DEVICE constexpr int value_position(int key) {
  return (key & ~31) + (key & 16) + (key % 8 / 2) * 4 + (key & 8) / 4 + key % 2;
}
KV8_HOST_DEVICE constexpr int value_key(int position) {
  return (position & ~31) + (position & 16) + (position % 4 / 2) * 8 + (position % 16 / 4) * 2 + position % 2;
}

// The row of a dim in V^T: within 32 dims, such that a thread of wgmma's result holds 8 neighbouring dims.
KV8_HOST_DEVICE constexpr int value_row(int dim) {
  return (dim & ~31) + (dim % 8 / 2) * 8 + (dim % 32 / 8) * 2 + dim % 2;
}
KV8_HOST_DEVICE constexpr int value_dim(int row) {
  return (row & ~31) + (row % 8 / 2) * 8 + (row % 32 / 8) * 2 + row % 2;
}

// Byte offsets from the start of a head's part of a page.
KV8_HOST_DEVICE constexpr int key_offset(CacheFormat format, int head_dim, int slot, int dim) {
  return row_image_offset(format, head_dim, kPageTokens, slot, dim);
}
KV8_HOST_DEVICE constexpr int value_offset(CacheFormat format, int head_dim, int slot, int dim) {
  if (format == CacheFormat::bf16) {
    return kPageTokens * head_dim * 2 + row_image_offset(format, head_dim, kPageTokens, slot, dim);
  }
  return kPageTokens * head_dim + swizzle128(value_row(dim), value_position(slot));
}

}  // namespace kv8::attention::cuda
