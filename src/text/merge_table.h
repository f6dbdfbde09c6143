// The merges of a BPE model: (left id, right id) to (rank, id of the two together). An open hash with a
// random seed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "text/vocabulary.h"

namespace kv8::text {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;  // lower merges first
    int32_t id = kNoToken;
  };

  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t merges)
      : multiplier_(hash_seed() | 1),
        shift_(64 - std::bit_width(2 * merges + 1)),
        slots_(std::bit_ceil(2 * merges + 2)) {}

  // At most as many as the constructor was told. A pair that is there already gets the new rank.
  void insert(int32_t left, int32_t right, Merge merge) {
    Slot& slot = slots_[index_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
    if (merge.rank >= ranks_) ranks_ = merge.rank + 1;
  }

  // nullptr if the two don't merge.
  const Merge* find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[index_of(key_of(left, right))];
    return slot.key == kEmpty ? nullptr : &slot.merge;
  }

  uint32_t ranks() const { return ranks_; }  // every rank is below

 private:
  static constexpr uint64_t kEmpty = std::numeric_limits<uint64_t>::max();
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  // A random odd multiplier; the upper bits of the product depend on all of the key's.
  size_t index_of(uint64_t key) const {
    size_t i = key * multiplier_ >> shift_;
    const size_t mask = slots_.size() - 1;
    while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask;
    return i;
  }

  uint64_t multiplier_;
  int shift_;
  std::vector<Slot> slots_;
  uint32_t ranks_ = 0;
};

}  // namespace kv8::text
