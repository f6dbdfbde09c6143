#include "ops/cpu/packed_weights.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/tensor.h"

namespace kv8::ops::cpu {

namespace {

constexpr int kMaxBlock = 256;

// One row's block, taken apart: codes in the order of the columns, d and m as they are, sub-block scales.
struct Block {
  uint8_t codes[kMaxBlock];
  uint16_t d = 0;
  uint16_t m = 0;
  uint8_t scales[16];    // per sub-block of 16 or 32 columns
  uint8_t minimums[16];  // Q4_K, Q5_K
};

uint16_t load16(const uint8_t* from) {
  uint16_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void nibbles_32(const uint8_t* nibbles, uint8_t* codes) {  // low nibbles are the first 16 columns
  for (int i = 0; i < 16; ++i) {
    codes[i] = nibbles[i] & 15;
    codes[i + 16] = nibbles[i] >> 4;
  }
}

void fifth_bits_32(const uint8_t* bits, uint8_t* codes) {
  uint32_t word;
  std::memcpy(&word, bits, sizeof(word));
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>(((word >> i) & 1U) << 4);
}

// Two-bit codes of Q2_K and Q3_K: columns 32 k .. 32 k + 31 of a half in bits 2k, 2k + 1 of its 32 bytes.
void pairs_256(const uint8_t* pairs, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 4; ++k) {
      for (int i = 0; i < 32; ++i) codes[half * 128 + k * 32 + i] = (pairs[half * 32 + i] >> (2 * k)) & 3;
    }
  }
}

void read_q2_k(const uint8_t* from, Block& block) {
  std::memcpy(block.scales, from, 16);
  pairs_256(from + 16, block.codes);
  block.d = load16(from + 80);
  block.m = load16(from + 82);
}

void read_q3_k(const uint8_t* from, Block& block) {
  pairs_256(from + 32, block.codes);
  for (int k = 0; k < 8; ++k) {
    for (int i = 0; i < 32; ++i) block.codes[k * 32 + i] |= static_cast<uint8_t>(((from[i] >> k) & 1) << 2);
  }
  const uint8_t* packed = from + 96;
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
    block.scales[s] = static_cast<uint8_t>((low | (high << 4)) - 32);
  }
  block.d = load16(from + 108);
}

// d, m and the 12 bytes of 6-bit scales and minimums of Q4_K and Q5_K.
void read_k_header(const uint8_t* from, Block& block) {
  block.d = load16(from);
  block.m = load16(from + 2);
  const uint8_t* packed = from + 4;
  for (int s = 0; s < 4; ++s) {
    block.scales[s] = packed[s] & 63;
    block.minimums[s] = packed[s + 4] & 63;
    block.scales[s + 4] = static_cast<uint8_t>((packed[s + 8] & 15) | ((packed[s] >> 6) << 4));
    block.minimums[s + 4] = static_cast<uint8_t>((packed[s + 8] >> 4) | ((packed[s + 4] >> 6) << 4));
  }
}

void nibbles_256(const uint8_t* nibbles, uint8_t* codes) {  // 64 columns of 32 bytes: low nibbles, then high
  for (int p = 0; p < 4; ++p) {
    for (int i = 0; i < 32; ++i) {
      codes[p * 64 + i] = nibbles[p * 32 + i] & 15;
      codes[p * 64 + 32 + i] = nibbles[p * 32 + i] >> 4;
    }
  }
}

void read_q6_k(const uint8_t* from, Block& block) {
  nibbles_256(from, block.codes);
  // Of each half's 64 nibble bytes, the first 32 hold columns 0-31 and 64-95, the second 32-63 and 96-127.
  for (int half = 0; half < 2; ++half) {
    uint8_t* codes = block.codes + half * 128;
    std::swap_ranges(codes + 32, codes + 64, codes + 64);
    const uint8_t* pairs = from + 128 + half * 32;
    for (int k = 0; k < 4; ++k) {
      for (int i = 0; i < 32; ++i)
        codes[k * 32 + i] |= static_cast<uint8_t>(((pairs[i] >> (2 * k)) & 3) << 4);
    }
  }
  std::memcpy(block.scales, from + 192, 16);
  block.d = load16(from + 208);
}

void read_block(DType dtype, const uint8_t* from, Block& block) {
  switch (dtype) {
    case DType::q4_0:
      block.d = load16(from);
      return nibbles_32(from + 2, block.codes);
    case DType::q4_1:
      block.d = load16(from);
      block.m = load16(from + 2);
      return nibbles_32(from + 4, block.codes);
    case DType::q5_0:
      block.d = load16(from);
      nibbles_32(from + 6, block.codes);
      return fifth_bits_32(from + 2, block.codes);
    case DType::q5_1:
      block.d = load16(from);
      block.m = load16(from + 2);
      nibbles_32(from + 8, block.codes);
      return fifth_bits_32(from + 4, block.codes);
    case DType::q8_0:
      block.d = load16(from);
      std::memcpy(block.codes, from + 2, 32);
      return;
    case DType::q2_k:
      return read_q2_k(from, block);
    case DType::q3_k:
      return read_q3_k(from, block);
    case DType::q4_k:
      read_k_header(from, block);
      return nibbles_256(from + 16, block.codes);
    case DType::q5_k:
      read_k_header(from, block);
      nibbles_256(from + 48, block.codes);
      for (int s = 0; s < 8; ++s) {
        for (int i = 0; i < 32; ++i) {
          block.codes[s * 32 + i] |= static_cast<uint8_t>(((from[16 + i] >> s) & 1) << 4);
        }
      }
      return;
    case DType::q6_k:
      return read_q6_k(from, block);
    default:
      KV8_CHECK(false, "{} is not a block type", to_string(dtype));
  }
}

void put_scales(DType dtype, const Block& block, int group, int row, uint8_t* out) {
  switch (dtype) {
    case DType::q4_k:
    case DType::q5_k:
      out[row] = block.scales[group];
      out[8 + row] = block.minimums[group];
      return;
    case DType::q2_k:
    case DType::q3_k:
    case DType::q6_k:
      out[row] = block.scales[2 * group];
      out[8 + row] = block.scales[2 * group + 1];
      return;
    default:
      return;
  }
}

// quads: [8][32] codes of one byte each.
void put_codes(int bits, const uint8_t (*quads)[32], uint8_t* out) {
  const auto put_nibbles = [&] {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 32; ++i) {
        out[j * 32 + i] = static_cast<uint8_t>((quads[j][i] & 15) | (quads[j + 4][i] << 4));
      }
    }
    out += 128;
  };
  const auto put_pairs = [&](int shift) {  // two bits from bit `shift` up
    for (int v = 0; v < 2; ++v) {
      for (int i = 0; i < 32; ++i) {
        int byte = 0;
        for (int k = 0; k < 4; ++k) byte |= ((quads[4 * v + k][i] >> shift) & 3) << (2 * k);
        out[v * 32 + i] = static_cast<uint8_t>(byte);
      }
    }
    out += 64;
  };
  const auto put_top_bit = [&](int shift) {
    for (int i = 0; i < 32; ++i) {
      int byte = 0;
      for (int q = 0; q < 8; ++q) byte |= ((quads[q][i] >> shift) & 1) << q;
      out[i] = static_cast<uint8_t>(byte);
    }
  };
  switch (bits) {
    case 2:
      return put_pairs(0);
    case 3:
      put_pairs(0);
      return put_top_bit(2);
    case 4:
      return put_nibbles();
    case 5:
      put_nibbles();
      return put_top_bit(4);
    case 6:
      put_nibbles();
      return put_pairs(4);
    default:
      std::memcpy(out, quads, 256);
  }
}

// rows: up to kPanelRows rows of the file's blocks.
void pack_panel(DType dtype, const uint8_t* rows, size_t row_bytes, int row_count, int64_t supers,
                uint8_t* out) {
  const PackedType type = packed_type(dtype);
  const auto block_bytes = static_cast<size_t>(dtype_info(dtype).block_bytes);
  Block blocks[kPanelRows] = {};
  for (int64_t super = 0; super < supers; ++super) {
    for (int row = 0; row < row_count; ++row) {
      read_block(dtype,
                 rows + static_cast<size_t>(row) * row_bytes + static_cast<size_t>(super) * block_bytes,
                 blocks[row]);
    }
    for (int row = 0; row < kPanelRows; ++row) {
      std::memcpy(out + 2 * row, &blocks[row].d, 2);
      if (type.has_minima) std::memcpy(out + 16 + 2 * row, &blocks[row].m, 2);
    }
    out += type.header_bytes();
    for (int group = 0; group < type.groups_per_super; ++group) {
      uint8_t quads[8][32];
      for (int row = 0; row < kPanelRows; ++row) {
        put_scales(dtype, blocks[row], group, row, out);
        const uint8_t* codes = blocks[row].codes + group * kGroupCols;
        for (int q = 0; q < 8; ++q) std::memcpy(&quads[q][4 * row], codes + 4 * q, 4);
      }
      out += type.group_scale_bytes;
      put_codes(type.bits, quads, out);
      out += type.group_code_bytes();
    }
  }
}

}  // namespace

Expected<PackedWeights> pack_weights(DType dtype, const std::byte* data, int64_t rows, int64_t cols,
                                     ThreadPool& pool) {
  const PackedType type = packed_type(dtype);
  const int64_t supers = cols / (type.groups_per_super * kGroupCols);
  PackedWeights packed;
  packed.dtype = dtype;
  packed.panels = (rows + kPanelRows - 1) / kPanelRows;
  packed.panel_bytes = static_cast<size_t>(supers) * static_cast<size_t>(type.super_bytes());
  KV8_ASSIGN_OR_RETURN(
      packed.memory,
      LazyMemory::reserve(static_cast<size_t>(packed.panels) * packed.panel_bytes, "weights", true));
  const auto* from = reinterpret_cast<const uint8_t*>(data);
  auto* to = reinterpret_cast<uint8_t*>(packed.memory.data());
  const size_t bytes = row_bytes(dtype, cols);
  constexpr int64_t kPanelsPerTask = 8;
  pool.parallel_for((packed.panels + kPanelsPerTask - 1) / kPanelsPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(packed.panels, (task + 1) * kPanelsPerTask);
    for (int64_t panel = task * kPanelsPerTask; panel < end; ++panel) {
      const int64_t row = panel * kPanelRows;
      pack_panel(dtype, from + static_cast<size_t>(row) * bytes, bytes,
                 static_cast<int>(std::min<int64_t>(kPanelRows, rows - row)), supers,
                 to + static_cast<size_t>(panel) * packed.panel_bytes);
    }
  });
  return packed;
}

}  // namespace kv8::ops::cpu
