#include "kv_cache/sequence_pages.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace kv8::kv_cache {

SequencePages::SequencePages(const CachePlan& plan, std::span<BlockPool> pools)
    : plan_(&plan), pools_(pools), tables_(plan.groups.size()), first_held_(plan.groups.size(), 0) {
  KV8_CHECK(pools.size() == plan.groups.size(), "{} pools for {} groups", pools.size(), plan.groups.size());
}

SequencePages::~SequencePages() {
  for (const PageCopy& copy : copies_) pools_[copy.group].release(copy.from);
  for (size_t group = 0; group < tables_.size(); ++group) {
    for (const int32_t page : tables_[group]) {
      if (page != kNoPage) pools_[group].release(page);
    }
  }
}

// The first entry that a query at position `length` needs. It sees keys from length - window + 1 on.
size_t SequencePages::oldest_entry(size_t group, int64_t length) const {
  const int64_t window = plan_->groups[group].window;
  if (window == 0) return 0;
  return static_cast<size_t>(std::max<int64_t>(length - window + 1, 0) / kPageTokens);
}

void SequencePages::free_behind_window(size_t group) {
  std::vector<int32_t>& table = tables_[group];
  const size_t keep_from = std::min(oldest_entry(group, length_), table.size());
  for (size_t& index = first_held_[group]; index < keep_from; ++index) {
    pools_[group].release(table[index]);
    table[index] = kNoPage;
  }
}

SequencePages::Need SequencePages::need_of(size_t group, int64_t tokens) const {
  const CacheGroup& kind = plan_->groups[group];
  const std::vector<int32_t>& table = tables_[group];
  Need need;
  if (tokens == 0) return need;
  const bool state = kind.kind == CacheKind::state;
  const int64_t wanted = state ? kind.slots : pages_of(length_ + tokens);
  need.added = std::max<int64_t>(wanted - static_cast<int64_t>(table.size()), 0);
  // A step rewrites a state whole, and pages from the one that holds position length_ on.
  const size_t written = state ? 0 : static_cast<size_t>(length_ / kPageTokens);
  for (size_t index = written; index < table.size(); ++index) {
    if (pools_[group].references(table[index]) > 1) need.replaced.push_back(index);
  }
  return need;
}

Status SequencePages::reserve(int64_t tokens) {
  KV8_CHECK(tokens >= 0, "{} tokens", tokens);
  std::vector<Need> needs;
  for (size_t group = 0; group < tables_.size(); ++group) {
    free_behind_window(group);
    needs.push_back(need_of(group, tokens));
  }
  for (size_t group = 0; group < tables_.size(); ++group) {
    const int64_t pages = needs[group].added + static_cast<int64_t>(needs[group].replaced.size());
    if (pages > pools_[group].free_pages()) {
      return make_error(ErrorCode::out_of_memory,
                        "the KV cache is full: {} more pages of {} tokens needed, {} of {} free", pages,
                        kPageTokens, pools_[group].free_pages(), pools_[group].pages());
    }
  }
  for (size_t group = 0; group < tables_.size(); ++group) {
    BlockPool& pool = pools_[group];
    for (const size_t index : needs[group].replaced) {
      // The reference to the old page passes from the table to the copy.
      const int32_t from = std::exchange(tables_[group][index], *pool.allocate());
      copies_.push_back({group, from, tables_[group][index]});
    }
    for (int64_t i = 0; i < needs[group].added; ++i) tables_[group].push_back(*pool.allocate());
  }
  return {};
}

void SequencePages::advance(int64_t tokens) {
  KV8_CHECK(tokens >= 0, "{} tokens", tokens);
  for (size_t group = 0; group < tables_.size(); ++group) {
    KV8_CHECK(plan_->groups[group].kind == CacheKind::state ||
                  pages_of(length_ + tokens) <= static_cast<int64_t>(tables_[group].size()),
              "{} tokens after {}: {} pages were reserved", tokens, length_, tables_[group].size());
  }
  if (tokens > 0) {
    for (const PageCopy& copy : copies_) pools_[copy.group].release(copy.from);
    copies_.clear();
  }
  length_ += tokens;
}

void SequencePages::drop_copies_from(size_t group, size_t first_entry) {
  const std::vector<int32_t>& table = tables_[group];
  std::erase_if(copies_, [&](const PageCopy& copy) {
    const auto entry =
        std::find(table.begin() + static_cast<std::ptrdiff_t>(first_entry), table.end(), copy.to);
    if (copy.group != group || entry == table.end()) return false;
    pools_[group].release(copy.from);
    return true;
  });
}

Status SequencePages::truncate(int64_t length) {
  if (length < 0 || length > length_) {
    return make_error(ErrorCode::invalid_argument, "a sequence of {} tokens can't go back to {}", length_,
                      length);
  }
  for (size_t group = 0; group < tables_.size() && length > 0; ++group) {
    if (plan_->groups[group].kind == CacheKind::state && length != length_) {
      return make_error(ErrorCode::unsupported,
                        "a recurrent state can't go back from token {} to {}: start the sequence over",
                        length_, length);
    }
    if (first_held_[group] > oldest_entry(group, length)) {
      return make_error(ErrorCode::unsupported,
                        "a sequence of {} tokens can't go back to {}: its window of {} has given back pages "
                        "that are needed there; start the sequence over",
                        length_, length, plan_->groups[group].window);
    }
  }
  for (size_t group = 0; group < tables_.size(); ++group) {
    if (plan_->groups[group].kind == CacheKind::state && length > 0) continue;
    std::vector<int32_t>& table = tables_[group];
    const auto kept = std::min(static_cast<size_t>(pages_of(length)), table.size());
    drop_copies_from(group, kept);
    for (size_t index = std::max(kept, first_held_[group]); index < table.size(); ++index)
      pools_[group].release(table[index]);
    table.resize(kept);
    first_held_[group] = std::min(first_held_[group], kept);
  }
  length_ = length;
  return {};
}

void SequencePages::adopt(std::span<const std::span<const int32_t>> pages, int64_t tokens) {
  KV8_CHECK(length_ == 0 && copies_.empty(), "a sequence of {} tokens", length_);
  KV8_CHECK(tokens >= 0 && tokens % kPageTokens == 0, "{} tokens are not whole pages", tokens);
  KV8_CHECK(pages.size() == tables_.size(), "pages of {} groups, {} in the plan", pages.size(),
            tables_.size());
  for (size_t group = 0; group < tables_.size(); ++group) {
    const CacheGroup& kind = plan_->groups[group];
    const bool state = kind.kind == CacheKind::state;
    const auto expected = static_cast<size_t>(state ? (tokens > 0 ? kind.slots : 0) : pages_of(tokens));
    KV8_CHECK(tables_[group].empty(), "group {} has pages", group);
    KV8_CHECK(pages[group].size() == expected, "group {}: {} pages for {} tokens", group, pages[group].size(),
              tokens);
    // What its window has left behind is not needed, whether or not the other still has it.
    const size_t first = std::min(oldest_entry(group, tokens), expected);
    std::vector<int32_t>& table = tables_[group];
    table.assign(expected, kNoPage);
    first_held_[group] = first;
    for (size_t index = first; index < expected; ++index) {
      table[index] = pages[group][index];
      pools_[group].retain(table[index]);
    }
  }
  length_ = tokens;
}

std::vector<const int32_t*> SequencePages::tables() const {
  std::vector<const int32_t*> pointers;
  pointers.reserve(tables_.size());
  for (const auto& table : tables_) pointers.push_back(table.data());
  return pointers;
}

int64_t SequencePages::held_pages(size_t group) const {
  return static_cast<int64_t>(tables_[group].size() - first_held_[group]);
}

}  // namespace kv8::kv_cache
