// The pages of one cache group: who holds which. Pages are numbers; the bytes belong to the backend.
//
// Not thread-safe: one engine thread owns it. A page is held by reference counts, so that sequences can share
// one. The pool's own memory follows use: a page that was never handed out costs nothing here, and nothing in
// a backend that commits its pages as they are first written, because freed pages are handed out before new
// ones.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "core/error.h"

namespace kv8::kv_cache {

constexpr int64_t kMaxPoolPages = std::numeric_limits<int32_t>::max();  // pages are int32 in page tables

class BlockPool {
 public:
  // Errors: invalid_argument for fewer than 0 or more than kMaxPoolPages pages.
  static Expected<BlockPool> create(int64_t pages);

  int64_t pages() const { return pages_; }
  int64_t free_pages() const {
    return pages_ - static_cast<int64_t>(references_.size()) + static_cast<int64_t>(freed_.size());
  }

  // A page with one reference, or nothing when all are taken: the one freed longest ago, so that a page just
  // freed keeps its bytes for as long as others can serve; a page never used only if none was freed.
  std::optional<int32_t> allocate();
  void retain(int32_t page);
  void release(int32_t page);  // the last reference frees it
  int references(int32_t page) const;

 private:
  explicit BlockPool(int64_t pages) : pages_(pages) {}

  int64_t pages_;
  std::vector<int32_t> references_;  // of pages [0, size()), those ever handed out; 0: free
  std::deque<int32_t> freed_;        // the one freed longest ago first
};

}  // namespace kv8::kv_cache
