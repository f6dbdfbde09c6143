#include "kv_cache/sequence_pages.h"

#include <algorithm>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "kv_cache/plans.h"

namespace kv8::kv_cache {
namespace {

CachePlan windows(const std::vector<int64_t>& windows) {
  std::vector<CacheLayer> layers;
  for (const int64_t window : windows) layers.push_back(kv_layer(KvFormat::bf16, window, 1, 64));
  return plan_of(std::move(layers));
}

std::vector<BlockPool> pools_of(const std::vector<int64_t>& pages) {
  std::vector<BlockPool> pools;
  for (const int64_t count : pages) pools.push_back(BlockPool::create(count).value());
  return pools;
}

Status extend(SequencePages& sequence, int64_t tokens) {
  KV8_RETURN_IF_ERROR(sequence.reserve(tokens));
  sequence.advance(tokens);
  return {};
}

std::vector<std::span<const int32_t>> tables_of(const SequencePages& sequence, size_t groups) {
  std::vector<std::span<const int32_t>> tables;
  for (size_t group = 0; group < groups; ++group) tables.push_back(sequence.table(group));
  return tables;
}

TEST(SequencePages, FullPoolLeavesTheSequenceAsItWas) {
  const CachePlan plan = windows({0});
  std::vector<BlockPool> pools = pools_of({2});
  SequencePages pages(plan, pools);
  ASSERT_TRUE(extend(pages, kPageTokens).has_value());
  const auto status = extend(pages, 2 * kPageTokens);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(pages.length(), kPageTokens);
  EXPECT_EQ(pools[0].free_pages(), 1);
  EXPECT_TRUE(extend(pages, kPageTokens).has_value());
}

TEST(SequencePages, GivesEverythingBack) {
  const CachePlan plan = windows({0, 24});
  std::vector<BlockPool> pools = pools_of({50, 50});
  {
    SequencePages pages(plan, pools);
    ASSERT_TRUE(extend(pages, 1000).has_value());
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
    const CachePlan plan = windows({window, 0});
    const int64_t total = 3000;
    std::vector<BlockPool> pools = pools_of(
        {plan.groups[0].pages_for(total, chunk_limit), plan.groups[1].pages_for(total, chunk_limit)});
    SequencePages pages(plan, pools);
    while (pages.length() < total) {
      const int64_t first = pages.length();
      const int64_t chunk =
          std::min(std::uniform_int_distribution<int64_t>(1, chunk_limit)(random), total - first);
      ASSERT_TRUE(extend(pages, chunk).has_value())
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

TEST(SequencePages, AFailedStepChangesNothing) {
  const CachePlan plan = windows({0, 24});
  std::vector<BlockPool> pools = pools_of({4, 4});
  SequencePages pages(plan, pools);
  ASSERT_TRUE(extend(pages, 100).has_value());
  ASSERT_TRUE(pages.reserve(200).has_value());
  EXPECT_EQ(pages.length(), 100);
  const auto* entries = pages.table(0).data();
  const std::vector<int32_t> table(pages.table(0).begin(), pages.table(0).end());
  ASSERT_TRUE(pages.reserve(200).has_value());  // the same pages again
  EXPECT_EQ(std::vector<int32_t>(pages.table(0).begin(), pages.table(0).end()), table);
  EXPECT_EQ(pages.table(0).data(), entries);
  pages.advance(200);
  EXPECT_EQ(pages.length(), 300);
  EXPECT_EQ(pages.table(0).data(), entries);
}

TEST(SequencePages, AllGroupsOrNone) {
  const CachePlan plan = windows({0, 24});
  std::vector<BlockPool> pools = pools_of({10, 1});
  SequencePages pages(plan, pools);
  EXPECT_FALSE(pages.reserve(129).has_value());
  EXPECT_EQ(pools[0].free_pages(), 10);
  EXPECT_EQ(pools[1].free_pages(), 1);
  EXPECT_DEATH(pages.advance(1), "0 pages were reserved");
}

TEST(SequencePages, TruncateGivesBackWhatIsBeyond) {
  const CachePlan plan = windows({0});
  std::vector<BlockPool> pools = pools_of({10});
  SequencePages pages(plan, pools);
  ASSERT_TRUE(extend(pages, 700).has_value());
  ASSERT_TRUE(pages.reserve(200).has_value());
  EXPECT_EQ(pools[0].free_pages(), 2);
  ASSERT_TRUE(pages.truncate(700).has_value());  // reserved and not used
  EXPECT_EQ(pools[0].free_pages(), 4);
  ASSERT_TRUE(pages.truncate(257).has_value());
  EXPECT_EQ(pools[0].free_pages(), 7);
  ASSERT_TRUE(pages.truncate(256).has_value());
  EXPECT_EQ(pools[0].free_pages(), 8);
  EXPECT_FALSE(pages.truncate(257).has_value());
  EXPECT_FALSE(pages.truncate(-1).has_value());
  ASSERT_TRUE(pages.truncate(0).has_value());
  EXPECT_EQ(pools[0].free_pages(), 10);
}

TEST(SequencePages, NoWayBackToPagesThatAWindowGaveBack) {
  const CachePlan plan = windows({100, 0});
  std::vector<BlockPool> pools = pools_of({20, 20});
  SequencePages pages(plan, pools);
  ASSERT_TRUE(extend(pages, 500).has_value());
  ASSERT_TRUE(extend(pages, 1).has_value());  // gives back what is before 500 - 99: pages 0, 1 and 2
  const auto status = pages.truncate(482);    // needs 383, the last of page 2
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(pages.length(), 501);
  EXPECT_EQ(pools[1].free_pages(), 16);
  ASSERT_TRUE(pages.truncate(483).has_value());
  EXPECT_EQ(pages.held_pages(0), 1);
  ASSERT_TRUE(pages.truncate(0).has_value());  // starting over is always possible
  EXPECT_EQ(pools[0].free_pages(), 20);
  EXPECT_TRUE(extend(pages, 300).has_value());
  EXPECT_NE(pages.table(0)[0], kNoPage);
}

TEST(SequencePages, AdoptedPagesAreSharedUntilWritten) {
  const CachePlan plan = windows({0});
  std::vector<BlockPool> pools = pools_of({5});
  SequencePages first(plan, pools);
  ASSERT_TRUE(extend(first, 256).has_value());
  {
    SequencePages second(plan, pools);
    second.adopt(tables_of(first, 1), 256);
    EXPECT_EQ(second.length(), 256);
    EXPECT_EQ(pools[0].free_pages(), 3);
    ASSERT_TRUE(extend(second, 1).has_value());  // a page of its own
    EXPECT_TRUE(second.copies().empty());
    EXPECT_EQ(second.table(0)[1], first.table(0)[1]);

    // Back into the shared page: the write needs one of its own, with what the shared one had.
    ASSERT_TRUE(second.truncate(200).has_value());
    ASSERT_TRUE(second.reserve(1).has_value());
    ASSERT_EQ(second.copies().size(), 1U);
    const PageCopy copy = second.copies()[0];
    EXPECT_EQ(copy.from, first.table(0)[1]);
    EXPECT_EQ(copy.to, second.table(0)[1]);
    EXPECT_NE(copy.to, copy.from);
    EXPECT_EQ(second.table(0)[0], first.table(0)[0]);
    ASSERT_TRUE(second.reserve(1).has_value());  // the step failed, and is done again with its copy
    EXPECT_EQ(second.copies().size(), 1U);
    second.advance(1);
    EXPECT_TRUE(second.copies().empty());
    EXPECT_EQ(pools[0].references(copy.from), 1);
  }
  EXPECT_EQ(pools[0].free_pages(), 3);
}

// The source of a copy stays held until the copy is done, whatever becomes of the sequence that it came from.
TEST(SequencePages, TheSourceOfACopyIsHeld) {
  const CachePlan plan = windows({0});
  std::vector<BlockPool> pools = pools_of({3});
  std::optional<SequencePages> first(std::in_place, plan, pools);
  ASSERT_TRUE(extend(*first, 128).has_value());
  SequencePages second(plan, pools);
  second.adopt(tables_of(*first, 1), 128);
  ASSERT_TRUE(second.truncate(100).has_value());
  ASSERT_TRUE(second.reserve(1).has_value());
  first.reset();
  EXPECT_EQ(pools[0].free_pages(), 1);
  ASSERT_TRUE(second.truncate(0).has_value());  // no need of it any more
  EXPECT_EQ(pools[0].free_pages(), 3);
}

TEST(SequencePages, AWriteToASharedPageNeedsAFreeOne) {
  const CachePlan plan = windows({0});
  std::vector<BlockPool> pools = pools_of({1});
  SequencePages first(plan, pools);
  ASSERT_TRUE(extend(first, 128).has_value());
  SequencePages second(plan, pools);
  second.adopt(tables_of(first, 1), 128);
  ASSERT_TRUE(second.truncate(127).has_value());
  EXPECT_FALSE(second.reserve(1).has_value());
  EXPECT_EQ(second.table(0)[0], first.table(0)[0]);
  ASSERT_TRUE(first.truncate(0).has_value());
  EXPECT_TRUE(second.reserve(1).has_value());
  EXPECT_TRUE(second.copies().empty());
}

TEST(SequencePages, AdoptsWhatTheWindowStillSees) {
  const CachePlan plan = windows({100, 0});
  std::vector<BlockPool> pools = pools_of({20, 20});
  SequencePages first(plan, pools);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(extend(first, 128).has_value());
  ASSERT_EQ(first.table(0)[0], kNoPage);
  SequencePages second(plan, pools);
  second.adopt(tables_of(first, 2), 640);
  EXPECT_EQ(second.held_pages(0), 1);  // of keys from 541 on
  EXPECT_EQ(second.held_pages(1), 5);
  EXPECT_EQ(second.table(0)[3], kNoPage);
  EXPECT_EQ(second.table(0)[4], first.table(0)[4]);
}

TEST(SequencePages, AStateHasItsSlotsAndNoWayBack) {
  const CachePlan plan = plan_of({state_layer(100, 2), kv_layer(KvFormat::fp8)});
  std::vector<BlockPool> pools = pools_of({5, 10});
  SequencePages first(plan, pools);
  EXPECT_EQ(pools[0].free_pages(), 5);
  ASSERT_TRUE(extend(first, 1).has_value());
  ASSERT_TRUE(extend(first, 255).has_value());
  EXPECT_EQ(first.table(0).size(), 2U);
  EXPECT_EQ(pools[0].free_pages(), 3);
  EXPECT_FALSE(first.truncate(255).has_value());
  EXPECT_TRUE(first.truncate(256).has_value());
  SequencePages second(plan, pools);
  second.adopt(tables_of(first, 2), 256);
  ASSERT_TRUE(second.reserve(1).has_value());  // a step rewrites the state, so it is copied
  EXPECT_EQ(second.copies().size(), 2U);
  EXPECT_EQ(pools[0].free_pages(), 1);
  second.advance(1);
  ASSERT_TRUE(second.truncate(0).has_value());
  EXPECT_EQ(pools[0].free_pages(), 3);
}

}  // namespace
}  // namespace kv8::kv_cache
