#include "core/check.h"

#include <gtest/gtest.h>

namespace kv8 {
namespace {

TEST(Check, PassesWithoutEffect) {
  int evaluations = 0;
  KV8_CHECK(++evaluations == 1);
  KV8_CHECK(++evaluations == 2, "evaluations {}", evaluations);
  EXPECT_EQ(evaluations, 2);
}

TEST(Check, FormatsNothingUnlessItFails) {
  int formatted = 0;
  KV8_CHECK(formatted == 0, "{}", ++formatted);
  EXPECT_EQ(formatted, 0);
}

TEST(CheckDeathTest, NamesFileConditionAndValues) {
  const int rows = 3;
  EXPECT_DEATH(KV8_CHECK(rows == 4, "rows {} of {}", rows, "matrix"),
               "check_test\\.cc:[0-9]+: check failed: rows == 4: rows 3 of matrix\n.*bug in kv8");
}

TEST(CheckDeathTest, NeedsNoMessage) {
  EXPECT_DEATH(KV8_CHECK(1 > 2), "check failed: 1 > 2\n");
}

TEST(CheckDeathTest, BelongsToNoElse) {
  // As one statement: the else below must belong to the outer if.
  bool otherwise = false;
  if (otherwise)
    KV8_CHECK(false);
  else
    otherwise = true;
  EXPECT_TRUE(otherwise);
}

}  // namespace
}  // namespace kv8
