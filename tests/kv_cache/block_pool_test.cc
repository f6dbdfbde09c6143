#include "kv_cache/block_pool.h"

#include <set>

#include <gtest/gtest.h>

namespace kv8::kv_cache {
namespace {

TEST(BlockPool, CountsReferences) {
  BlockPool pool = BlockPool::create(2).value();
  const int32_t page = pool.allocate().value();
  pool.retain(page);
  pool.release(page);
  EXPECT_EQ(pool.free_pages(), 1);
  pool.release(page);
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_DEATH(pool.release(page), "page 0 is free");
  EXPECT_DEATH(pool.retain(1), "page 1 is free");  // never handed out
}

TEST(BlockPool, GivesEachPageOnce) {
  BlockPool pool = BlockPool::create(100).value();
  std::set<int32_t> pages;
  while (const auto page = pool.allocate()) pages.insert(*page);
  EXPECT_EQ(pages.size(), 100U);
  EXPECT_EQ(*pages.begin(), 0);
  EXPECT_EQ(*pages.rbegin(), 99);
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(BlockPool, ThePageFreedLongestAgoComesFirst) {
  BlockPool pool = BlockPool::create(6).value();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(pool.allocate().has_value());
  for (const int32_t page : {3, 0, 4, 1}) pool.release(page);
  EXPECT_EQ(pool.allocate(), 3);
  pool.release(2);
  pool.release(3);
  for (const int32_t page : {0, 4, 1, 2, 3}) EXPECT_EQ(pool.allocate(), page);
  EXPECT_EQ(pool.allocate(), 5);  // never used, so it comes last
  EXPECT_EQ(pool.allocate(), std::nullopt);
}

// Pools for contexts that nobody fills: as large as page numbers go, without memory for each page. (A vector
// of them would take 8 GB.)
TEST(BlockPool, TheLargestPoolIsFree) {
  BlockPool pool = BlockPool::create(kMaxPoolPages).value();
  EXPECT_EQ(pool.free_pages(), kMaxPoolPages);
  EXPECT_EQ(pool.references(static_cast<int32_t>(kMaxPoolPages - 1)), 0);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.free_pages(), kMaxPoolPages - 1);
}

TEST(BlockPool, RefusesMorePagesThanHaveNumbers) {
  for (const int64_t pages : {int64_t{-1}, kMaxPoolPages + 1, std::numeric_limits<int64_t>::max()}) {
    const auto pool = BlockPool::create(pages);
    ASSERT_FALSE(pool.has_value());
    EXPECT_EQ(pool.error().code, ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace kv8::kv_cache
