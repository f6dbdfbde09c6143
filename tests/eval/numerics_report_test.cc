#include "eval/numerics_report.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace kv8::eval {
namespace {

// The second table of docs/numerics.md at 32,768 keys: who fails where, and by how much at least and at most.
TEST(NumericsReport, ReproducesTheTable) {
  ThreadPool pool(2);
  NumericsOptions options;
  options.max_keys = 32768;
  int calls = 0;
  int64_t last_done = 0;
  options.progress = [&](int64_t done, int64_t total) {
    ++calls;
    EXPECT_GT(done, last_done);
    EXPECT_LE(done, total);
    last_done = done;
  };
  const auto rows = run_numerics(options, pool);
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->size(), 3U * 4U);
  EXPECT_EQ(calls, 12);
  std::map<std::string, NumericsRow> longest;
  for (const NumericsRow& row : *rows) {
    EXPECT_LT(row.f32, 1e-4) << row.name;
    if (row.keys == options.max_keys) longest[row.name] = row;
  }
  const auto within = [](double error, double low, double high) { return error > low && error < high; };
  EXPECT_PRED3(within, longest["diffuse"].single, 0.1, 0.4);
  EXPECT_PRED3(within, longest["diffuse"].two_level, 1e-4, 2e-3);
  EXPECT_PRED3(within, longest["diffuse"].tile, 1e-4, 2e-3);
  EXPECT_PRED3(within, longest["sink +12"].single, 0.05, 0.5);
  EXPECT_PRED3(within, longest["sink +12"].two_level, 4e-3, 6e-2);
  EXPECT_PRED3(within, longest["sink +12"].tile, 2e-4, 4e-3);
  EXPECT_PRED3(within, longest["sink +16"].single, 0.9, 1.0);
  EXPECT_PRED3(within, longest["sink +16"].two_level, 0.9, 1.0);
  EXPECT_PRED3(within, longest["sink +16"].tile, 3e-4, 1e-2);
  EXPECT_PRED3(within, longest["needle p=0.5"].single, 0.03, 0.4);
  EXPECT_PRED3(within, longest["needle p=0.5"].tile, 1e-4, 4e-3);
  EXPECT_GT(longest["needle p=0.5"].two_level, 1.2 * longest["needle p=0.5"].tile);
}

TEST(NumericsReport, RefusesWhatMakesNoSense) {
  ThreadPool pool(1);
  NumericsOptions options;
  options.max_keys = 100;
  EXPECT_FALSE(run_numerics(options, pool));
  options.max_keys = 1024;
  options.head_dim = 80;
  const auto rows = run_numerics(options, pool);
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("80"), std::string::npos);
}

}  // namespace
}  // namespace kv8::eval
