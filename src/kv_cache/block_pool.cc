#include "kv_cache/block_pool.h"

#include <limits>

#include "core/check.h"

namespace kv8::kv_cache {

BlockPool::BlockPool(int64_t pages) : references_(static_cast<size_t>(pages), 0) {
  KV8_CHECK(pages >= 0 && pages <= std::numeric_limits<int32_t>::max(), "{} pages", pages);
  free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<int32_t>(page));
}

std::optional<int32_t> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void BlockPool::retain(int32_t page) {
  KV8_CHECK(references(page) > 0, "page {} is free", page);
  ++references_[static_cast<size_t>(page)];
}

void BlockPool::release(int32_t page) {
  KV8_CHECK(references(page) > 0, "page {} is free", page);
  if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int BlockPool::references(int32_t page) const {
  KV8_CHECK(page >= 0 && page < pages(), "page {} of {}", page, pages());
  return references_[static_cast<size_t>(page)];
}

}  // namespace kv8::kv_cache
