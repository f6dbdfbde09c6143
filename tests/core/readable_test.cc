#include "core/readable.h"

#include <limits>

#include <gtest/gtest.h>

namespace kv8 {
namespace {

TEST(Readable, Thousands) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(-999), "-999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(-123456), "-123,456");
  EXPECT_EQ(with_thousands(131072), "131,072");
  EXPECT_EQ(with_thousands(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Readable, Bytes) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(92'900'000), "92.9 MB");
  EXPECT_EQ(human_bytes(16e15), "16000.0 TB");
}

}  // namespace
}  // namespace kv8
