// The pages of one cache group: who holds which. Pages are numbers; the bytes belong to the backend.
//
// Not thread-safe: one engine thread owns it. A page is held by reference counts, so that sequences can share
// one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace kv8::kv_cache {

class BlockPool {
 public:
  explicit BlockPool(int64_t pages);

  int64_t pages() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }

  // A page with one reference, or nothing when all are taken. The page freed last comes first: its bytes are
  // warm.
  std::optional<int32_t> allocate();
  void retain(int32_t page);
  void release(int32_t page);  // the last reference frees it
  int references(int32_t page) const;

 private:
  std::vector<int32_t> references_;  // [pages]; 0: free
  std::vector<int32_t> free_;        // a stack
};

}  // namespace kv8::kv_cache
