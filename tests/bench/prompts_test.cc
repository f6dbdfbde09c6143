#include "bench/prompts.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace kv8::bench {
namespace {

TEST(RandomPrompt, StaysInTheVocabularyAndUsesAllOfIt) {
  const auto tokens = random_prompt(100'000, 320, 1, 2);
  ASSERT_EQ(tokens.size(), 100'000U);
  std::vector<int> counts(320);
  for (const int32_t token : tokens) {
    ASSERT_GE(token, 0);
    ASSERT_LT(token, 320);
    ++counts[static_cast<size_t>(token)];
  }
  // 312.5 expected, with a deviation of 17.7: six of them.
  EXPECT_GT(*std::ranges::min_element(counts), 206);
  EXPECT_LT(*std::ranges::max_element(counts), 419);
}

TEST(RandomPrompt, IsTheSameEachTimeAndAnotherForEachStream) {
  const auto tokens = random_prompt(64, 128'256, 7, 3);
  EXPECT_EQ(random_prompt(64, 128'256, 7, 3), tokens);
  EXPECT_NE(random_prompt(64, 128'256, 7, 4).front(), tokens.front());
  EXPECT_NE(random_prompt(64, 128'256, 8, 3).front(), tokens.front());
  const auto shorter = random_prompt(10, 128'256, 7, 3);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), tokens.begin()));
  EXPECT_TRUE(random_prompt(0, 5, 0, 0).empty());
  EXPECT_EQ(random_prompt(3, 1, 0, 0), (std::vector<int32_t>{0, 0, 0}));
}

TEST(PromptLengths, AreClippedToTheContext) {
  EXPECT_EQ(default_prompt_lengths().size(), 10U);
  EXPECT_EQ(clip_lengths(default_prompt_lengths(), 1900), (std::vector<int64_t>{256, 512, 1024, 1900}));
  EXPECT_EQ(clip_lengths(default_prompt_lengths(), 1024), (std::vector<int64_t>{256, 512, 1024}));
  EXPECT_EQ(clip_lengths({500, 3, 500}, 1'000'000), (std::vector<int64_t>{3, 500}));
  EXPECT_EQ(clip_lengths({500, 300}, 100), (std::vector<int64_t>{100}));
}

}  // namespace
}  // namespace kv8::bench
