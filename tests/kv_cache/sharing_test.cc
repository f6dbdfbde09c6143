// Random histories of sequences that grow, fail, go back, share and end, against a model that keeps every
// sequence's tokens in a plain list. The cache's bytes are simulated, one number per token, so that a page in
// two places, a copy forgotten or a page given back too early is read as a wrong token.
#include <algorithm>
#include <map>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "kv_cache/plans.h"
#include "kv_cache/sequence_pages.h"

namespace kv8::kv_cache {
namespace {

constexpr int64_t kWindow = 200;

struct Sequence {
  SequencePages pages;
  std::vector<int> tokens;  // all that it should hold
};

class World {
 public:
  explicit World(unsigned seed)
      : random_(seed), plan_(plan_of({kv_layer(KvFormat::fp8), kv_layer(KvFormat::fp8, kWindow)})) {
    for (const int64_t pages : {30, 20}) pools_.push_back(BlockPool::create(pages).value());
    for (const BlockPool& pool : pools_)
      memory_.emplace_back(static_cast<size_t>(pool.pages()) * kPageTokens, -1);
  }

  void act() {
    if (sequences_.empty() || draw(0, 19) == 0) {
      sequences_.push_back(std::make_unique<Sequence>(SequencePages(plan_, pools_)));
    }
    const auto chosen = static_cast<size_t>(draw(0, static_cast<int64_t>(sequences_.size()) - 1));
    Sequence& sequence = *sequences_[chosen];
    switch (draw(0, 9)) {
      case 0:
        truncate(sequence, draw(0, sequence.pages.length()));
        break;
      case 1:
        adopt(sequence);
        break;
      case 2:
        if (draw(0, 2) == 0) sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(chosen));
        break;
      default:
        step(sequence, draw(0, 1) != 0 ? draw(1, 3) : draw(1, 400));
    }
  }

  void check() const {
    for (const auto& sequence : sequences_) {
      ASSERT_EQ(sequence->pages.length(), static_cast<int64_t>(sequence->tokens.size()));
      for (size_t group = 0; group < pools_.size(); ++group) check_tokens(*sequence, group);
    }
    for (size_t group = 0; group < pools_.size(); ++group) check_pool(group);
  }

  int refused() const { return refused_; }
  int copied() const { return copied_; }
  int adopted() const { return adopted_; }
  int truncated() const { return truncated_; }

  void end() {
    sequences_.clear();
    for (const BlockPool& pool : pools_) EXPECT_EQ(pool.free_pages(), pool.pages());
  }

 private:
  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  int& slot(const SequencePages& pages, size_t group, int64_t position) {
    const int32_t page = pages.table(group)[static_cast<size_t>(position / kPageTokens)];
    return memory_[group].at(static_cast<size_t>(page * kPageTokens + position % kPageTokens));
  }

  void step(Sequence& sequence, int64_t tokens) {
    const int64_t first = sequence.pages.length();
    std::vector<int64_t> free_before;
    for (const BlockPool& pool : pools_) free_before.push_back(pool.free_pages());
    if (!sequence.pages.reserve(tokens)) {
      ++refused_;
      for (size_t group = 0; group < pools_.size(); ++group)
        EXPECT_GE(pools_[group].free_pages(), free_before[group]);
      return;
    }
    // A step may fail before its copies, after some of its writes, or not at all.
    const int64_t fate = draw(0, 9);
    if (fate == 0) return;
    for (const PageCopy& copy : sequence.pages.copies()) {
      ++copied_;
      std::vector<int>& memory = memory_[copy.group];
      std::copy_n(memory.begin() + int64_t{copy.from} * kPageTokens, kPageTokens,
                  memory.begin() + int64_t{copy.to} * kPageTokens);
    }
    const int64_t written = fate == 1 ? draw(0, tokens) : tokens;
    std::vector<int> drawn;
    for (int64_t i = 0; i < written; ++i) {
      drawn.push_back(static_cast<int>(draw(0, 1'000'000)));
      for (size_t group = 0; group < pools_.size(); ++group)
        slot(sequence.pages, group, first + i) = drawn.back();
    }
    if (fate == 1) return;
    sequence.pages.advance(tokens);
    sequence.tokens.insert(sequence.tokens.end(), drawn.begin(), drawn.end());
  }

  void truncate(Sequence& sequence, int64_t length) {
    if (!sequence.pages.truncate(length)) return;
    ++truncated_;
    sequence.tokens.resize(static_cast<size_t>(length));
  }

  // The sequence starts over with the whole pages of another.
  void adopt(Sequence& sequence) {
    const Sequence& source =
        *sequences_[static_cast<size_t>(draw(0, static_cast<int64_t>(sequences_.size()) - 1))];
    const int64_t tokens = source.pages.length() / kPageTokens * kPageTokens;
    const auto pages = static_cast<size_t>(tokens / kPageTokens);
    // What the window sees from there, the source must still have.
    const auto needed = static_cast<size_t>(std::max<int64_t>(tokens - kWindow + 1, 0) / kPageTokens);
    if (&source == &sequence || (needed < pages && source.pages.table(1)[needed] == kNoPage)) return;
    ASSERT_TRUE(sequence.pages.truncate(0).has_value());
    const std::vector<std::span<const int32_t>> tables = {source.pages.table(0).first(pages),
                                                          source.pages.table(1).first(pages)};
    sequence.pages.adopt(tables, tokens);
    sequence.tokens.assign(source.tokens.begin(), source.tokens.begin() + tokens);
    ++adopted_;
    if (draw(0, 1) != 0) truncate(sequence, std::max<int64_t>(tokens - draw(0, 150), 0));
  }

  void check_tokens(const Sequence& sequence, size_t group) const {
    const int64_t length = sequence.pages.length();
    const int64_t window = plan_.groups[group].window;
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(length - window + 1, 0);

    for (int64_t position = first; position < length; ++position) {
      int32_t page = sequence.pages.table(group)[static_cast<size_t>(position / kPageTokens)];
      ASSERT_NE(page, kNoPage);
      // Until its copy is done a page of its own has nothing, and the page that it comes from has it.
      for (const PageCopy& copy : sequence.pages.copies()) {
        if (copy.group == group && copy.to == page) page = copy.from;
      }
      ASSERT_EQ(memory_[group].at(static_cast<size_t>(page * kPageTokens + position % kPageTokens)),
                sequence.tokens[static_cast<size_t>(position)])
          << "group " << group << " position " << position << " of " << length;
    }
  }

  // Every page is free or held, and held as often as sequences name it.
  void check_pool(size_t group) const {
    std::map<int32_t, int> holders;
    for (const auto& sequence : sequences_) {
      for (const int32_t page : sequence->pages.table(group)) {
        if (page != kNoPage) ++holders[page];
      }
      for (const PageCopy& copy : sequence->pages.copies()) {
        if (copy.group == group) ++holders[copy.from];
      }
    }
    const BlockPool& pool = pools_[group];
    EXPECT_EQ(pool.free_pages() + static_cast<int64_t>(holders.size()), pool.pages());
    for (int32_t page = 0; page < pool.pages(); ++page) {
      const auto held = holders.find(page);
      ASSERT_EQ(pool.references(page), held == holders.end() ? 0 : held->second) << "page " << page;
    }
  }

  std::mt19937 random_;
  CachePlan plan_;
  std::vector<BlockPool> pools_;
  std::vector<std::vector<int>> memory_;  // [group][page * kPageTokens + slot]
  std::vector<std::unique_ptr<Sequence>> sequences_;
  int refused_ = 0;
  int copied_ = 0;
  int adopted_ = 0;
  int truncated_ = 0;
};

TEST(SharedPages, RandomHistoriesReadWhatTheyWrote) {
  int refused = 0;
  int copied = 0;
  int adopted = 0;
  int truncated = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    World world(seed);
    for (int i = 0; i < 300; ++i) {
      world.act();
      world.check();
      if (HasFatalFailure() || HasNonfatalFailure()) FAIL() << "seed " << seed << ", action " << i;
    }
    refused += world.refused();
    copied += world.copied();
    adopted += world.adopted();
    truncated += world.truncated();
    world.end();
  }
  // Each kind of event did occur.
  EXPECT_GT(refused, 100);
  EXPECT_GT(copied, 100);
  EXPECT_GT(adopted, 100);
  EXPECT_GT(truncated, 100);
}

}  // namespace
}  // namespace kv8::kv_cache
