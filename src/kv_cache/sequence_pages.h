// The pages that one sequence holds, by cache group, and the page tables that the kernels read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "kv_cache/block_pool.h"
#include "kv_cache/cache_plan.h"

namespace kv8::kv_cache {

// Entry of a page that its window has left behind. Kernels never read it.
constexpr int32_t kNoPage = -1;

class SequencePages {
 public:
  // plan and pools (one per group) must outlive this.
  SequencePages(const CachePlan& plan, std::span<BlockPool> pools);
  SequencePages(SequencePages&&) = default;
  SequencePages& operator=(SequencePages&&) = delete;
  ~SequencePages();  // gives every page back

  // Makes room for positions [length(), length() + tokens) in every group, after giving back the pages that
  // no query at a position >= length() can see. out_of_memory if a pool has too few pages; then nothing was
  // allocated.
  Status extend(int64_t tokens);

  int64_t length() const { return length_; }
  std::span<const int32_t> table(size_t group) const { return tables_[group]; }
  std::vector<const int32_t*> tables() const;
  int64_t held_pages(size_t group) const;

 private:
  void free_behind_window(size_t group);

  const CachePlan* plan_;
  std::span<BlockPool> pools_;
  std::vector<std::vector<int32_t>> tables_;  // [group][position / kPageTokens]
  std::vector<size_t> first_held_;            // [group]: entries before it are kNoPage
  int64_t length_ = 0;
};

}  // namespace kv8::kv_cache
