// Byte pair encoding: a word's characters become tokens, and neighbours merge, lowest rank first and leftmost
// among equals, until nothing merges.
//
// Time: n log n with a heap for words of ordinary length; for long ones a queue with a bucket per rank, which
// visits memory in order and is near linear (10 MB without a space is one word for Gemma).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_table.h"
#include "text/vocabulary.h"

namespace kv8::text {

struct BpeOptions {
  bool ignore_merges = false;  // a word that is a token as a whole is that token, whatever the merges say
  bool byte_fallback = false;  // an unknown character becomes the tokens <0xNN> of its bytes
  bool fuse_unknown = false;   // neighbouring unknown characters become one unknown token
  int32_t unknown = kNoToken;  // kNoToken: unknown characters vanish
};

class Bpe {
 public:
  // Memory and the words seen so far, for one text. Not shared between threads.
  class Scratch;

  Bpe() = default;
  Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Appends the word's tokens. `word` is valid UTF-8 and, for a byte-level model, already in its byte
  // alphabet.
  void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Symbol {
    int32_t id = kNoToken;  // kNoToken: merged into its left neighbour
    int32_t previous = kNoToken;
    int32_t next = kNoToken;
    MergeTable::Merge merge;  // with the next symbol; its id is kNoToken if they don't merge
  };

  void encode_uncached(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void split_characters(std::string_view word, std::vector<Symbol>& symbols) const;
  int32_t character_id(std::string_view character) const;
  template <class Queue>
  size_t merge_all(std::vector<Symbol>& symbols, Queue& queue) const;

  class HeapQueue;
  class BucketQueue;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 0x200>
      short_characters_{};                  // ids of the characters below U+0200: all of a byte alphabet
  std::array<int32_t, 256> byte_tokens_{};  // ids of <0x00> to <0xFF>
};

class Bpe::Scratch {
 public:
  size_t steps() const { return steps_; }  // pairs that were looked at so far

 private:
  friend class Bpe;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return hash_text(text); }
  };
  struct Range {
    size_t begin = 0;
    size_t count = 0;
  };
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;
  std::unordered_map<std::string, Range, Hash, std::equal_to<>> cache_;
  std::vector<int32_t> cached_ids_;
  size_t steps_ = 0;
};

}  // namespace kv8::text
