#include "text/bpe.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "core/check.h"
#include "text/unicode.h"

namespace kv8::text {

namespace {

constexpr size_t kLongWord = 4096;          // symbols; from here on the buckets' fixed cost is small
constexpr size_t kCachedWordBytes = 64;     // longer words hardly come twice
constexpr size_t kCachedWords = 64 * 1024;  // some 10 MB
// Positions are 32 bits, so a word of more bytes than this is cut. No tokenizer's word is anywhere near.
constexpr size_t kMaxWordBytes = size_t{1} << 30;

constexpr uint64_t candidate(uint32_t rank, uint32_t position) {
  return static_cast<uint64_t>(rank) << 32 | position;
}

}  // namespace

// Candidates for merging, as (rank, position) in one number; pop() gives the smallest.
class Bpe::HeapQueue {
 public:
  explicit HeapQueue(std::vector<uint64_t>& memory) : heap_(memory) { heap_.clear(); }

  void push(uint32_t rank, uint32_t position) {
    heap_.push_back(candidate(rank, position));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  std::optional<uint64_t> pop() {
    if (heap_.empty()) return std::nullopt;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t smallest = heap_.back();
    heap_.pop_back();
    return smallest;
  }

 private:
  std::vector<uint64_t>& heap_;
};

// The same order from a list per rank. Ranks are visited upwards, and a rank's positions are sorted when its
// turn comes. A merge nearly always makes candidates of a higher rank than its own; the few others go to a
// heap, which is looked at first.
class Bpe::BucketQueue {
 public:
  BucketQueue(uint32_t ranks, std::vector<uint64_t>& memory) : heads_(ranks, kNone), late_(memory) {}

  void push(uint32_t rank, uint32_t position) {
    if (started_ && rank <= rank_) {
      late_.push(rank, position);
      return;
    }
    nodes_.push_back({position, heads_[rank]});
    heads_[rank] = static_cast<uint32_t>(nodes_.size() - 1);
  }

  std::optional<uint64_t> pop() {
    const std::optional<uint64_t> late = late_.pop();
    const bool have_next = late ? cursor_ < positions_.size() : next_position();
    if (!late) return have_next ? std::optional(candidate(rank_, positions_[cursor_++])) : std::nullopt;
    if (!have_next || *late <= candidate(rank_, positions_[cursor_])) return late;
    late_.push(static_cast<uint32_t>(*late >> 32), static_cast<uint32_t>(*late));
    return candidate(rank_, positions_[cursor_++]);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t position = 0;
    uint32_t next = kNone;
  };

  // Makes positions_[cursor_] the next one, from the next rank that has any if need be.
  bool next_position() {
    while (cursor_ == positions_.size()) {
      if (started_) ++rank_;
      started_ = true;
      while (rank_ < heads_.size() && heads_[rank_] == kNone) ++rank_;
      if (rank_ >= heads_.size()) return false;
      positions_.clear();
      cursor_ = 0;
      for (uint32_t node = heads_[rank_]; node != kNone; node = nodes_[node].next) {
        positions_.push_back(nodes_[node].position);
      }
      heads_[rank_] = kNone;
      std::reverse(positions_.begin(), positions_.end());  // pushed left to right more often than not
      if (!std::is_sorted(positions_.begin(), positions_.end()))
        std::sort(positions_.begin(), positions_.end());
    }
    return true;
  }

  std::vector<uint32_t> heads_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> positions_;  // of rank_, ascending
  size_t cursor_ = 0;
  uint32_t rank_ = 0;
  bool started_ = false;
  HeapQueue late_;
};

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(options) {
  for (size_t i = 0; i < short_characters_.size(); ++i) {
    std::string character;
    append_utf8(character, static_cast<char32_t>(i));
    short_characters_[i] = vocabulary_.find(character);
  }
  for (size_t i = 0; i < byte_tokens_.size(); ++i) {
    byte_tokens_[i] = vocabulary_.find(fmt::format("<0x{:02X}>", i));
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (word.size() > kCachedWordBytes) {
    while (word.size() > kMaxWordBytes) {
      size_t cut = kMaxWordBytes;
      while ((static_cast<unsigned char>(word[cut]) & 0xC0) == 0x80) --cut;
      encode_uncached(word.substr(0, cut), scratch, ids);
      word.remove_prefix(cut);
    }
    encode_uncached(word, scratch, ids);
    return;
  }
  const auto cached = scratch.cache_.find(word);
  if (cached != scratch.cache_.end()) {
    const auto* first = scratch.cached_ids_.data() + cached->second.begin;
    ids.insert(ids.end(), first, first + cached->second.count);
    return;
  }
  const size_t before = ids.size();
  encode_uncached(word, scratch, ids);
  if (scratch.cache_.size() < kCachedWords) {
    scratch.cache_.emplace(word, Scratch::Range{scratch.cached_ids_.size(), ids.size() - before});
    scratch.cached_ids_.insert(scratch.cached_ids_.end(), ids.begin() + static_cast<ptrdiff_t>(before),
                               ids.end());
  }
}

void Bpe::encode_uncached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const int32_t id = vocabulary_.find(word); id != kNoToken) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<Symbol>& symbols = scratch.symbols_;
  symbols.clear();
  split_characters(word, symbols);
  if (symbols.size() < kLongWord) {
    HeapQueue queue(scratch.heap_);
    scratch.steps_ += merge_all(symbols, queue);
  } else {
    BucketQueue queue(merges_.ranks(), scratch.heap_);
    scratch.steps_ += merge_all(symbols, queue);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kNoToken) ids.push_back(symbol.id);
  }
}

int32_t Bpe::character_id(std::string_view character) const {
  if (character.size() <= 2) {
    size_t position = 0;
    const char32_t code = decode_utf8(character, position);
    if (code < short_characters_.size()) return short_characters_[code];
  }
  return vocabulary_.find(character);
}

void Bpe::split_characters(std::string_view word, std::vector<Symbol>& symbols) const {
  const auto add = [&](int32_t id) {
    const auto index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, index - 1, kNoToken, {}});
  };
  // An unknown token waits until the next known character, so that more can fuse into it. Bytes don't end the
  // wait: the reference implementation puts them in front of it.
  bool unknown_waits = false;
  for (size_t i = 0; i < word.size();) {
    const std::string_view character = word.substr(i, utf8_length(word[i]));
    i += character.size();
    const int32_t id = character_id(character);
    if (id != kNoToken) {
      if (unknown_waits) add(options_.unknown);
      unknown_waits = false;
      add(id);
      continue;
    }
    const auto byte_token = [&](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
    if (options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                              [&](char byte) { return byte_token(byte) != kNoToken; })) {
      for (const char byte : character) add(byte_token(byte));
    } else if (options_.unknown != kNoToken) {
      if (unknown_waits && !options_.fuse_unknown) add(options_.unknown);
      unknown_waits = true;
    }
  }
  if (unknown_waits) add(options_.unknown);
}

template <class Queue>
size_t Bpe::merge_all(std::vector<Symbol>& symbols, Queue& queue) const {
  size_t steps = 0;
  const auto consider = [&](int32_t position) {
    ++steps;
    if (position == kNoToken) return;
    Symbol& left = symbols[static_cast<size_t>(position)];
    const auto* merge =
        left.next == kNoToken ? nullptr : merges_.find(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (merge == nullptr) {
      left.merge.id = kNoToken;
    } else {
      left.merge = *merge;
      queue.push(merge->rank, static_cast<uint32_t>(position));
    }
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i));

  while (const std::optional<uint64_t> candidate = queue.pop()) {
    ++steps;
    const auto position = static_cast<int32_t>(*candidate & 0xFFFFFFFFU);
    Symbol& left = symbols[static_cast<size_t>(position)];
    // The pair may have changed since it became a candidate.
    if (left.id == kNoToken || left.merge.id == kNoToken || left.merge.rank != *candidate >> 32) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.merge.id;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next != kNoToken) symbols[static_cast<size_t>(left.next)].previous = position;
    consider(left.previous);
    consider(position);
  }
  return steps;
}

}  // namespace kv8::text
