#include "kv_cache/sequence_pages.h"

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace kv8::kv_cache {
namespace {

CachePlan plan_of(std::vector<int64_t> windows) {
  std::vector<CacheLayer> layers;
  for (const int64_t window : windows) {
    CacheLayer& layer = layers.emplace_back();
    layer.kv_heads = 1;
    layer.head_dim = 64;
    layer.window = window;
  }
  return make_cache_plan(std::move(layers)).value();
}

TEST(BlockPool, CountsReferences) {
  BlockPool pool(2);
  const int32_t page = pool.allocate().value();
  pool.retain(page);
  pool.release(page);
  EXPECT_EQ(pool.free_pages(), 1);
  pool.release(page);
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_DEATH(pool.release(page), "page 0 is free");
}

TEST(BlockPool, GivesEachPageOnce) {
  BlockPool pool(100);
  std::set<int32_t> pages;
  while (const auto page = pool.allocate()) pages.insert(*page);
  EXPECT_EQ(pages.size(), 100U);
  EXPECT_EQ(*pages.begin(), 0);
  EXPECT_EQ(*pages.rbegin(), 99);
}

TEST(SequencePages, FullPoolLeavesTheSequenceAsItWas) {
  const CachePlan plan = plan_of({0});
  std::vector<BlockPool> pools(1, BlockPool(2));
  SequencePages pages(plan, pools);
  ASSERT_TRUE(pages.extend(kPageTokens).has_value());
  const auto status = pages.extend(2 * kPageTokens);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(pages.length(), kPageTokens);
  EXPECT_EQ(pools[0].free_pages(), 1);
  EXPECT_TRUE(pages.extend(kPageTokens).has_value());
}

TEST(SequencePages, GivesEverythingBack) {
  const CachePlan plan = plan_of({0, 24});
  std::vector<BlockPool> pools(2, BlockPool(50));
  {
    SequencePages pages(plan, pools);
    ASSERT_TRUE(pages.extend(1000).has_value());
    SequencePages moved(std::move(pages));
    EXPECT_LT(pools[0].free_pages(), 50);
  }
  EXPECT_EQ(pools[0].free_pages(), 50);
  EXPECT_EQ(pools[1].free_pages(), 50);
}

// Whatever the window and the chunks: every key that a query of the chunk can see has a page, no two
// positions share one, and the sequence never holds more than CacheGroup::pages_for promises.
TEST(SequencePages, WindowKeepsWhatItsQueriesSee) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int64_t window = std::uniform_int_distribution<int64_t>(1, 700)(random);
    const int64_t chunk_limit = std::uniform_int_distribution<int64_t>(1, 600)(random);
    const CachePlan plan = plan_of({window, 0});
    const int64_t total = 3000;
    std::vector<BlockPool> pools = {BlockPool(plan.groups[0].pages_for(total, chunk_limit)),
                                    BlockPool(plan.groups[1].pages_for(total, chunk_limit))};
    SequencePages pages(plan, pools);
    while (pages.length() < total) {
      const int64_t first = pages.length();
      const int64_t chunk =
          std::min(std::uniform_int_distribution<int64_t>(1, chunk_limit)(random), total - first);
      ASSERT_TRUE(pages.extend(chunk).has_value())
          << "window " << window << " chunk limit " << chunk_limit << " at " << first;
      const auto table = pages.table(0);
      for (int64_t key = std::max<int64_t>(0, first - window + 1); key < first + chunk; ++key) {
        ASSERT_NE(table[static_cast<size_t>(key / kPageTokens)], kNoPage)
            << "window " << window << " key " << key;
      }
      std::vector<int32_t> held;
      std::ranges::copy_if(table, std::back_inserter(held), [](int32_t page) { return page != kNoPage; });
      EXPECT_EQ(static_cast<int64_t>(held.size()), pages.held_pages(0));
      std::ranges::sort(held);
      EXPECT_TRUE(std::ranges::adjacent_find(held) == held.end());
    }
  }
}

}  // namespace
}  // namespace kv8::kv_cache
