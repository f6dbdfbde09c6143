#include "text/vocabulary.h"

#include <algorithm>
#include <bit>
#include <random>

#include <xxhash.h>

namespace kv8::text {

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

uint64_t hash_text(std::string_view text) {
  return XXH3_64bits_withSeed(text.data(), text.size(), hash_seed());
}

Expected<Vocabulary> Vocabulary::build(std::string arena, std::vector<Entry> entries,
                                       std::string_view source) {
  int32_t largest = kNoToken;
  for (const Entry& entry : entries) largest = std::max(largest, entry.id);
  const size_t ids = static_cast<size_t>(static_cast<int64_t>(largest) + 1);
  if (ids > 16 * entries.size() + 65536) {
    return make_error(ErrorCode::corrupt_data, "{}: model.vocab: id {} is far above the number of tokens, {}",
                      source, largest, entries.size());
  }
  Vocabulary result;
  result.arena_ = std::move(arena);
  result.entries_ = std::move(entries);
  result.by_id_.assign(ids, kEmpty);
  result.slots_.resize(std::bit_ceil(2 * result.entries_.size() + 2));
  for (uint32_t i = 0; i < result.entries_.size(); ++i) {
    const std::string_view text = result.entry_text(i);
    Slot& slot = result.find_slot(text);
    slot.tag = static_cast<uint32_t>(hash_text(text) >> 32);
    slot.entry = i;
    uint32_t& by_id = result.by_id_[static_cast<size_t>(result.entries_[i].id)];
    if (by_id == kEmpty) by_id = i;
  }
  return result;
}

Vocabulary::Slot& Vocabulary::find_slot(std::string_view text) {
  const uint64_t hash = hash_text(text);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.entry == kEmpty || (slot.tag == hash >> 32 && entry_text(slot.entry) == text)) return slot;
  }
}

int32_t Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return kNoToken;
  const uint64_t hash = hash_text(text);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.entry == kEmpty) return kNoToken;
    if (slot.tag == hash >> 32 && entry_text(slot.entry) == text) return entries_[slot.entry].id;
  }
}

std::string_view Vocabulary::text(int32_t id) const {
  return contains(id) ? entry_text(by_id_[static_cast<size_t>(id)]) : std::string_view();
}

bool Vocabulary::contains(int32_t id) const {
  return id >= 0 && id < size() && by_id_[static_cast<size_t>(id)] != kEmpty;
}

}  // namespace kv8::text
