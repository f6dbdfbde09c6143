// Columns of float weights as vectors of rows, straight from the stored rows: transposed and widened in
// registers. Compiled once per target.
//
// 16 bytes of each row are seen as four 32-bit lanes and transposed as such, whatever the format; then a lane
// holds one, two or four neighbouring columns of its row, which are a shift and a mask away from floats. So
// the cost of crossing lanes is shared by all columns of a lane, and nothing goes through memory.
#if defined(KV8_OPS_LANE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KV8_OPS_LANE_COLUMNS_INL_H_
#undef KV8_OPS_LANE_COLUMNS_INL_H_
#else
#define KV8_OPS_LANE_COLUMNS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "ops/cpu/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace kv8::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Wider vectors than eight lanes would only make the panels, and so the remainders, larger.
using F32 = hn::CappedTag<float, 8>;
using U32 = hn::RebindToUnsigned<F32>;
using V = hn::Vec<F32>;

#if HWY_TARGET != HWY_SCALAR

// Each format: a lane holds kPerLane columns; widen() makes the vectors of these columns, times 1 /
// kMultiplier. Where kMultiplier isn't 1, the codes that mean infinity or NaN come out as numbers: twice such
// a code, as a SpecialTag number, is kFirstSpecial or more, and no other code's double is.
struct LaneF32 {
  static constexpr int kPerLane = 1;
  static constexpr float kMultiplier = 1.0F;
  static HWY_INLINE void widen(hn::Vec<U32> lanes, V* columns) { columns[0] = hn::BitCast(F32(), lanes); }
};

struct LaneBf16 {
  static constexpr int kPerLane = 2;
  static constexpr float kMultiplier = 1.0F;
  static HWY_INLINE void widen(hn::Vec<U32> lanes, V* columns) {
    columns[0] = hn::BitCast(F32(), hn::ShiftLeft<16>(lanes));
    columns[1] = hn::BitCast(F32(), hn::And(lanes, hn::Set(U32(), 0xFFFF0000U)));
  }
};

struct LaneF16 {
  static constexpr int kPerLane = 2;
  static constexpr float kMultiplier = 0x1p112F;
  using SpecialTag = hn::Repartition<uint16_t, F32>;
  static constexpr uint16_t kFirstSpecial = 0xF800;
  // Shifted down by 3 with its sign, a code in the upper half has its fields where a float has them.
  static HWY_INLINE V widen_upper(hn::Vec<U32> lanes) {
    const hn::RebindToSigned<F32> di;
    const auto moved = hn::ShiftRight<3>(hn::BitCast(di, lanes));
    return hn::BitCast(F32(), hn::And(moved, hn::Set(di, static_cast<int32_t>(0x8FFFE000U))));
  }
  static HWY_INLINE void widen(hn::Vec<U32> lanes, V* columns) {
    columns[0] = widen_upper(hn::ShiftLeft<16>(lanes));
    columns[1] = widen_upper(lanes);
  }
};

struct LaneE4m3 {
  static constexpr int kPerLane = 4;
  static constexpr float kMultiplier = 0x1p120F;
  using SpecialTag = hn::Repartition<uint8_t, F32>;
  static constexpr uint8_t kFirstSpecial = 0xFE;
  // The upper code of each half, shifted down by 4 with its sign, is the upper half of a float.
  static HWY_INLINE hn::Vec<U32> place(hn::Vec<U32> lanes) {
    const hn::Repartition<int16_t, F32> d16;
    const auto moved = hn::ShiftRight<4>(hn::BitCast(d16, lanes));
    return hn::BitCast(U32(), hn::And(moved, hn::Set(d16, static_cast<int16_t>(0x87F0))));
  }
  static HWY_INLINE void widen(hn::Vec<U32> lanes, V* columns) {
    const hn::Repartition<int16_t, F32> d16;
    const auto lower = place(hn::BitCast(U32(), hn::ShiftLeft<8>(hn::BitCast(d16, lanes))));
    const auto upper = place(lanes);
    const auto mask = hn::Set(U32(), 0xFFFF0000U);
    columns[0] = hn::BitCast(F32(), hn::ShiftLeft<16>(lower));
    columns[1] = hn::BitCast(F32(), hn::ShiftLeft<16>(upper));
    columns[2] = hn::BitCast(F32(), hn::And(lower, mask));
    columns[3] = hn::BitCast(F32(), hn::And(upper, mask));
  }
};

// Columns that one step takes: 16 bytes of each row.
template <class W>
constexpr int64_t kStep = 4 * W::kPerLane;

constexpr size_t kFetchAhead = 256;  // bytes of a row

// 16 bytes of row i in the first block of four lanes, of row i + 4 in the second.
HWY_INLINE hn::Vec<U32> load_blocks(const std::byte* row, size_t row_bytes) {
  if constexpr (hn::MaxLanes(U32()) == 8) {
    const hn::Half<U32> half;
    const auto* low = reinterpret_cast<const uint32_t*>(row);
    const auto* high = reinterpret_cast<const uint32_t*>(row + 4 * row_bytes);
    return hn::Combine(U32(), hn::LoadU(half, high), hn::LoadU(half, low));
  } else {
    return hn::LoadU(U32(), reinterpret_cast<const uint32_t*>(row));
  }
}

template <class W>
HWY_INLINE hn::Vec<U32> max_of_doubles(hn::Vec<U32> largest, hn::Vec<U32> codes) {
  const typename W::SpecialTag d;
  const auto numbers = hn::BitCast(d, codes);
  return hn::BitCast(U32(), hn::Max(hn::BitCast(d, largest), hn::Add(numbers, numbers)));
}

// panel[c * width + r] = number c of row r for the columns [0, count), a multiple of kStep, and the rows of
// one vector. multipliers: what the rows are multiplied by, W::kMultiplier included; not read where that
// is 1. False if there was an infinity or a NaN that widen() doesn't know.
template <class W>
HWY_INLINE bool store_columns(const std::byte* rows, size_t row_bytes, int64_t count, V multipliers,
                              int64_t width, float* HWY_RESTRICT panel) {
  constexpr bool kScaled = W::kMultiplier != 1.0F;
  const U32 d32;
  auto largest = hn::Zero(d32);
  for (int64_t c = 0; c < count; c += kStep<W>, rows += 16) {
    if (c % (4 * kStep<W>) == 0) {  // a line of each row: too many streams, too short each, for the hardware
      for (size_t r = 0; r < hn::Lanes(d32); ++r) hwy::Prefetch(rows + r * row_bytes + kFetchAhead);
    }
    const auto row0 = load_blocks(rows, row_bytes);
    const auto row1 = load_blocks(rows + row_bytes, row_bytes);
    const auto row2 = load_blocks(rows + 2 * row_bytes, row_bytes);
    const auto row3 = load_blocks(rows + 3 * row_bytes, row_bytes);
    if constexpr (kScaled) {
      largest = max_of_doubles<W>(max_of_doubles<W>(largest, row0), row1);
      largest = max_of_doubles<W>(max_of_doubles<W>(largest, row2), row3);
    }
    const auto low02 = hn::InterleaveLower(d32, row0, row2);
    const auto low13 = hn::InterleaveLower(d32, row1, row3);
    const auto high02 = hn::InterleaveUpper(d32, row0, row2);
    const auto high13 = hn::InterleaveUpper(d32, row1, row3);
    const hn::Vec<U32> quarters[4] = {
        hn::InterleaveLower(d32, low02, low13), hn::InterleaveUpper(d32, low02, low13),
        hn::InterleaveLower(d32, high02, high13), hn::InterleaveUpper(d32, high02, high13)};
    KV8_UNROLL
    for (int quarter = 0; quarter < 4; ++quarter) {
      V columns[W::kPerLane];
      W::widen(quarters[quarter], columns);
      KV8_UNROLL
      for (int i = 0; i < W::kPerLane; ++i, panel += width) {
        if constexpr (kScaled) columns[i] = hn::Mul(columns[i], multipliers);
        hn::StoreU(columns[i], F32(), panel);
      }
    }
  }
  if constexpr (kScaled) {
    const typename W::SpecialTag d;
    return hn::AllTrue(d, hn::Lt(hn::BitCast(d, largest), hn::Set(d, W::kFirstSpecial)));
  }
  return true;
}

#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace kv8::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // the guard of this target
