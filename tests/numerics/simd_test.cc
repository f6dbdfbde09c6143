#include "numerics/simd.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace kv8::numerics {
namespace {

// DisableTargets() has no way back but this: the test says which targets there are.
class Simd : public testing::Test {
 protected:
  void TearDown() override { hwy::DisableTargets(0); }
};

TEST_F(Simd, EveryTargetCanBeTheLimit) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    std::string name = hwy::TargetName(target);
    ASSERT_TRUE(limit_simd(name)) << name;
    EXPECT_EQ(simd_name(), name);
    name[0] = static_cast<char>(std::tolower(name[0]));
    ASSERT_TRUE(limit_simd(name)) << name;
    hwy::DisableTargets(0);
  }
}

TEST_F(Simd, AnUnknownNameIsAnErrorThatListsTheKnown) {
  const std::string best = simd_name();
  const Status status = limit_simd("mmx");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(status.error().message.find("mmx"), std::string::npos);
  EXPECT_NE(status.error().message.find(", scalar"), std::string::npos) << status.error().message;
  EXPECT_EQ(simd_name(), best);
}

}  // namespace
}  // namespace kv8::numerics
