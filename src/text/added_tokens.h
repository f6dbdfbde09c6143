// Tokens that are found in the text as they are written ("<|im_start|>"), before anything else happens to it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/normalizer.h"

namespace kv8::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;       // what is looked for
  std::string text;          // what it decodes to: the content, in its normalized form for a normalized token
  bool special = false;      // control, not text: decode() may skip it, encode() may be told not to find it
  bool normalized = false;   // looked for in the normalized text, in its own normalized form
  bool left_strip = false;   // swallows the whitespace in front of it
  bool right_strip = false;  // swallows the whitespace behind it
  bool single_word = false;  // not inside of a word
};

// Strings in a tree of bytes, for the longest that starts at a place.
class TokenTrie {
 public:
  void insert(std::string_view text, uint32_t value);
  bool empty() const { return nodes_.size() == 1; }
  // The next place at or after `from` where a string may start; text.size() if there is none.
  size_t candidate(std::string_view text, size_t from) const;
  struct Match {
    uint32_t value = 0;
    size_t length = 0;
  };
  // The longest string that text.substr(from) starts with, of those that accept(value) doesn't refuse.
  template <class Accept>
  std::optional<Match> longest(std::string_view text, size_t from, const Accept& accept) const {
    std::optional<Match> best;
    uint32_t node = 0;
    for (size_t i = from; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) break;
      const uint32_t value = nodes_[node].value;
      if (value != kNone && accept(value)) best = Match{value, i + 1 - from};
    }
    return best;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    uint32_t value = kNone;
    uint32_t first_child = 0;  // 0, the root, is nobody's child
    uint32_t sibling = 0;
    unsigned char byte = 0;
  };
  uint32_t child(uint32_t node, unsigned char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<uint32_t, 256> roots_{};  // children of the root by their byte
};

class AddedTokens {
 public:
  static constexpr size_t kMaxContent = 1024;  // bytes; keeps the search linear

  // Errors: corrupt_data for contents longer than kMaxContent.
  static Expected<AddedTokens> build(std::vector<AddedToken> tokens, const Normalizer& normalizer,
                                     std::string_view source);

  // What lies between two tokens, or a token. `text` is empty for a token.
  struct Section {
    std::string_view text;
    int32_t token = -1;
  };
  // The text cut at the tokens that are looked for in raw text (normalized: in normalized text). Empty
  // sections are left out. find_special false: special tokens are text like any other.
  std::vector<Section> split(std::string_view text, bool normalized, bool find_special) const;

  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  int32_t size() const { return size_; }  // the largest id + 1

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, uint32_t> by_id_;
  std::unordered_map<std::string, uint32_t> by_content_;
  TokenTrie raw_;
  TokenTrie normalized_;
  int32_t size_ = 0;
};

// tokenizer.json's "added_tokens".
Expected<std::vector<AddedToken>> parse_added_tokens(const Json& list, std::string_view source);

}  // namespace kv8::text
