#include "text/added_tokens.h"

#include <algorithm>
#include <limits>

#include "text/unicode.h"
#include "text/vocabulary.h"

namespace kv8::text {

namespace {

// Whether text[begin, end) has no word character on either side.
bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (end < text.size()) {
    size_t next = end;
    if (is_word(decode_utf8(text, next))) return false;
  }
  if (begin == 0) return true;
  size_t previous = begin - 1;
  while (previous > 0 && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) --previous;
  return !is_word(decode_utf8(text, previous));
}

}  // namespace

void TokenTrie::insert(std::string_view text, uint32_t value) {
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({kNone, 0, nodes_[node].first_child, byte});
      nodes_[node].first_child = next;
      if (node == 0) roots_[byte] = next;
    }
    node = next;
  }
  if (node != 0 && nodes_[node].value == kNone) nodes_[node].value = value;
}

uint32_t TokenTrie::child(uint32_t node, unsigned char byte) const {
  if (node == 0) return roots_[byte];
  uint32_t next = nodes_[node].first_child;
  while (next != 0 && nodes_[next].byte != byte) next = nodes_[next].sibling;
  return next;
}

size_t TokenTrie::candidate(std::string_view text, size_t from) const {
  while (from < text.size() && roots_[static_cast<unsigned char>(text[from])] == 0) ++from;
  return from;
}

Expected<AddedTokens> AddedTokens::build(std::vector<AddedToken> tokens, const Normalizer& normalizer,
                                         std::string_view source) {
  AddedTokens result;
  result.tokens_ = std::move(tokens);
  for (uint32_t i = 0; i < result.tokens_.size(); ++i) {
    AddedToken& token = result.tokens_[i];
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxContent) {
      return make_error(ErrorCode::corrupt_data, "{}: added token {}: {} bytes, at most {} are allowed",
                        source, token.id, token.content.size(), kMaxContent);
    }
    token.text = token.content;
    if (token.normalized) {
      TextBudget budget(token.text.size());
      KV8_RETURN_IF_ERROR(normalizer.apply(token.text, budget));
    }
    result.by_id_.insert_or_assign(token.id, i);
    result.by_content_.insert_or_assign(token.content, i);
    result.size_ = std::max(result.size_, token.id + 1);
  }
  // Where two tokens look the same, a special one is found rather than another, and an earlier one rather
  // than a later.
  for (const bool special : {true, false}) {
    for (uint32_t i = 0; i < result.tokens_.size(); ++i) {
      const AddedToken& token = result.tokens_[i];
      if (token.special != special || token.text.empty()) continue;
      // Normalizing may make a content longer; beyond all measure only in a damaged file.
      if (token.text.size() <= 4 * kMaxContent)
        (token.normalized ? result.normalized_ : result.raw_).insert(token.text, i);
    }
  }
  return result;
}

std::vector<AddedTokens::Section> AddedTokens::split(std::string_view text, bool normalized,
                                                     bool find_special) const {
  const TokenTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Section> sections;
  size_t done = 0;  // everything in front of it is in a section
  const auto accept = [&](uint32_t i) { return find_special || !tokens_[i].special; };
  size_t at = trie.empty() ? text.size() : trie.candidate(text, 0);
  for (; at < text.size(); at = trie.candidate(text, at)) {
    const auto match = trie.longest(text, at, accept);
    if (!match) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[match->value];
    size_t begin = at;
    size_t end = at + match->length;
    at = end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.left_strip) begin = done + trailing_whitespace(text.substr(done, begin - done));
    if (token.right_strip) end += leading_whitespace(text.substr(end));
    if (begin > done) sections.push_back({text.substr(done, begin - done), kNoToken});
    sections.push_back({{}, token.id});
    done = at = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done), kNoToken});
  return sections;
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

Expected<std::vector<AddedToken>> parse_added_tokens(const Json& list, std::string_view source) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  if (!list.is_array())
    return make_error(ErrorCode::corrupt_data, "{}: added_tokens: expected a list", source);
  tokens.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    KV8_ASSIGN_OR_RETURN(const JsonObject object,
                         JsonObject::from(list[i], std::string(source), fmt::format("added_tokens[{}]", i)));
    AddedToken token;
    KV8_ASSIGN_OR_RETURN(const int64_t id, object.integer("id", 0, std::numeric_limits<int32_t>::max() - 1));
    token.id = static_cast<int32_t>(id);
    KV8_ASSIGN_OR_RETURN(token.content, object.string("content"));
    KV8_ASSIGN_OR_RETURN(token.special, object.boolean_or("special", false));
    KV8_ASSIGN_OR_RETURN(token.normalized, object.boolean_or("normalized", !token.special));
    KV8_ASSIGN_OR_RETURN(token.left_strip, object.boolean_or("lstrip", false));
    KV8_ASSIGN_OR_RETURN(token.right_strip, object.boolean_or("rstrip", false));
    KV8_ASSIGN_OR_RETURN(token.single_word, object.boolean_or("single_word", false));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace kv8::text
