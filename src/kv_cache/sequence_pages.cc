#include "kv_cache/sequence_pages.h"

#include <algorithm>

#include "core/check.h"

namespace kv8::kv_cache {

SequencePages::SequencePages(const CachePlan& plan, std::span<BlockPool> pools)
    : plan_(&plan), pools_(pools), tables_(plan.groups.size()), first_held_(plan.groups.size(), 0) {
  KV8_CHECK(pools.size() == plan.groups.size(), "{} pools for {} groups", pools.size(), plan.groups.size());
}

SequencePages::~SequencePages() {
  for (size_t group = 0; group < tables_.size(); ++group) {
    for (const int32_t page : tables_[group]) {
      if (page != kNoPage) pools_[group].release(page);
    }
  }
}

void SequencePages::free_behind_window(size_t group) {
  const int64_t window = plan_->groups[group].window;
  if (window == 0) return;
  // The next query stands at length_ and sees keys from length_ - window + 1 on.
  const int64_t oldest = std::max<int64_t>(length_ - window + 1, 0);
  std::vector<int32_t>& table = tables_[group];
  const auto keep_from = static_cast<size_t>(oldest / kPageTokens);
  for (size_t& index = first_held_[group]; index < std::min(keep_from, table.size()); ++index) {
    pools_[group].release(table[index]);
    table[index] = kNoPage;
  }
}

Status SequencePages::extend(int64_t tokens) {
  KV8_CHECK(tokens >= 0, "{} tokens", tokens);
  const auto wanted = static_cast<size_t>((length_ + tokens + kPageTokens - 1) / kPageTokens);
  for (size_t group = 0; group < tables_.size(); ++group) free_behind_window(group);
  for (size_t group = 0; group < tables_.size(); ++group) {
    const int64_t missing = static_cast<int64_t>(wanted) - static_cast<int64_t>(tables_[group].size());
    if (missing > pools_[group].free_pages()) {
      return make_error(ErrorCode::out_of_memory,
                        "the KV cache is full: {} more pages of {} tokens needed, {} of {} free", missing,
                        kPageTokens, pools_[group].free_pages(), pools_[group].pages());
    }
  }
  for (size_t group = 0; group < tables_.size(); ++group) {
    while (tables_[group].size() < wanted) tables_[group].push_back(*pools_[group].allocate());
  }
  length_ += tokens;
  return {};
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
