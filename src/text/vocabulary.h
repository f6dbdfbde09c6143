// Token text to id and back: all texts in one string, an open hash over them.
//
// A vocabulary of 262,144 tokens takes about 12 MB. The hash has a random seed, so that a file can't be made
// to collide.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace kv8::text {

constexpr int32_t kNoToken = -1;

// Of this process: hash tables filled from files use it.
uint64_t hash_seed();
uint64_t hash_text(std::string_view text);

class Vocabulary {
 public:
  struct Entry {
    uint32_t offset = 0;  // into the arena
    uint32_t length = 0;
    int32_t id = kNoToken;
  };

  Vocabulary() = default;
  // Of two entries with one text the later counts; of two texts with one id the first is the id's text.
  // Errors: corrupt_data for ids so sparse that a table by id would be much larger than the file.
  static Expected<Vocabulary> build(std::string arena, std::vector<Entry> entries, std::string_view source);

  int32_t find(std::string_view text) const;  // kNoToken if there is none
  std::string_view text(int32_t id) const;    // empty if there is none
  bool contains(int32_t id) const;
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }  // the largest id + 1
  size_t count() const { return entries_.size(); }

 private:
  static constexpr uint32_t kEmpty = std::numeric_limits<uint32_t>::max();
  struct Slot {
    uint32_t tag = 0;  // upper half of the hash
    uint32_t entry = kEmpty;
  };
  std::string_view entry_text(uint32_t entry) const {
    return std::string_view(arena_).substr(entries_[entry].offset, entries_[entry].length);
  }
  Slot& find_slot(std::string_view text);

  std::string arena_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> by_id_;  // into entries_
  std::vector<Slot> slots_;      // a power of two, at most half full
};

}  // namespace kv8::text
