#include "kv_cache/block_pool.h"

#include "core/check.h"

namespace kv8::kv_cache {

Expected<BlockPool> BlockPool::create(int64_t pages) {
  if (pages < 0 || pages > kMaxPoolPages) {
    return make_error(ErrorCode::invalid_argument, "a KV cache of {} pages: expected 0 to {}", pages,
                      kMaxPoolPages);
  }
  return BlockPool(pages);
}

std::optional<int32_t> BlockPool::allocate() {
  if (!freed_.empty()) {
    const int32_t page = freed_.front();
    freed_.pop_front();
    references_[static_cast<size_t>(page)] = 1;
    return page;
  }
  if (static_cast<int64_t>(references_.size()) == pages_) return std::nullopt;
  references_.push_back(1);
  return static_cast<int32_t>(references_.size() - 1);
}

void BlockPool::retain(int32_t page) {
  KV8_CHECK(references(page) > 0, "page {} is free", page);
  ++references_[static_cast<size_t>(page)];
}

void BlockPool::release(int32_t page) {
  KV8_CHECK(references(page) > 0, "page {} is free", page);
  if (--references_[static_cast<size_t>(page)] == 0) freed_.push_back(page);
}

int BlockPool::references(int32_t page) const {
  KV8_CHECK(page >= 0 && page < pages(), "page {} of {}", page, pages());
  const auto index = static_cast<size_t>(page);
  return index < references_.size() ? references_[index] : 0;
}

}  // namespace kv8::kv_cache
