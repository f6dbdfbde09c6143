// The pages that one sequence holds, by cache group, and the page tables that the kernels read.
//
// A step is: reserve (takes pages for its tokens), the copies that it asks for, the work, advance. A step
// that fails is followed by no advance: length() hasn't moved, so whatever it wrote lies at positions that
// nothing reads before they are written again. (A recurrent state is the exception: it is updated in place,
// so a sequence that has one starts over, truncate(0).)
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

// All layers of `group` copy page `from` to page `to` before anything is written to `to`.
struct PageCopy {
  size_t group = 0;
  int32_t from = 0;
  int32_t to = 0;
};

class SequencePages {
 public:
  // plan and pools (one per group) must outlive this.
  SequencePages(const CachePlan& plan, std::span<BlockPool> pools);
  SequencePages(SequencePages&&) = default;
  SequencePages& operator=(SequencePages&&) = delete;
  ~SequencePages();  // gives every page back

  // Takes pages for positions [length(), length() + tokens), in every group or in none, after giving back the
  // pages that no query at a position >= length() can see. A page that it would write to and that others hold
  // too is replaced by one of its own: see copies(). length() stays. out_of_memory if a pool has too few
  // pages.
  Status reserve(int64_t tokens);

  // The tokens are in the cache: length() grows. They must have been reserved, and copies() done.
  void advance(int64_t tokens);

  // Copies to be done before the step that was reserved, in any order. They stay until advance, so that a
  // step that failed before it did them is repeated with them; doing one twice does no harm. `from` stays
  // held as long.
  std::span<const PageCopy> copies() const { return copies_; }

  // Goes back to `length` tokens and gives back every page beyond them, reserved ones included. Errors, which
  // leave all as it was: invalid_argument beyond length(); unsupported where a window has given back pages
  // that the next query would see, or where a state can't go back (0 always can).
  Status truncate(int64_t length);

  // Begins with the first `tokens` tokens of another sequence, by sharing its pages: pages[g] is what that
  // sequence's table(g) had when its length was `tokens`, entries before its window may be kNoPage. Whole
  // pages only, into a sequence that has none.
  void adopt(std::span<const std::span<const int32_t>> pages, int64_t tokens);

  int64_t length() const { return length_; }
  // Page of a position: table(group)[position / kPageTokens]; of a state group: its slots. Where the entries
  // lie in memory changes with reserve and adopt alone.
  std::span<const int32_t> table(size_t group) const { return tables_[group]; }
  std::vector<const int32_t*> tables() const;
  int64_t held_pages(size_t group) const;

 private:
  struct Need {
    int64_t added = 0;             // pages at the end of the table
    std::vector<size_t> replaced;  // entries that are written to and shared
  };
  Need need_of(size_t group, int64_t tokens) const;
  void free_behind_window(size_t group);
  void drop_copies_from(size_t group, size_t first_entry);
  size_t oldest_entry(size_t group, int64_t length) const;

  const CachePlan* plan_;
  std::span<BlockPool> pools_;
  std::vector<std::vector<int32_t>> tables_;  // [group][position / kPageTokens]
  std::vector<size_t> first_held_;            // [group]: entries before it are kNoPage
  std::vector<PageCopy> copies_;
  int64_t length_ = 0;
};

}  // namespace kv8::kv_cache
