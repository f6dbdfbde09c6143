#include "numerics/exp2.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

namespace kv8::numerics {
namespace {

class Exp2 : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(Exp2, ErrorIsWithinItsBound) {
  std::vector<float> x;
  for (double value = -126.0; value < 127.0; value += 0.00037) x.push_back(static_cast<float>(value));
  std::vector<float> y(x.size());
  exp2_span(x.data(), x.size(), y.data());
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double right = std::exp2(static_cast<double>(x[i]));
    worst = std::max(worst, std::fabs(y[i] - right) / right);
  }
  std::cout << "largest relative error " << worst << "\n";
  EXPECT_LT(worst, 2e-7);
}

TEST_P(Exp2, EndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {-infinity, -1e30F, -126.5F, -126.0F, 0.0F, 1.0F, 100.0F, std::nanf("")};
  exp2_span(x.data(), x.size(), x.data());
  EXPECT_EQ(x[0], 0.0F);
  EXPECT_EQ(x[1], 0.0F);
  EXPECT_EQ(x[2], 0.0F);
  EXPECT_EQ(x[3], 0x1p-126F);
  EXPECT_EQ(x[4], 1.0F);
  EXPECT_EQ(x[5], 2.0F);
  EXPECT_EQ(x[6], 0x1p100F);
  EXPECT_TRUE(std::isnan(x[7]));
}

INSTANTIATE_TEST_SUITE_P(Targets, Exp2, testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace kv8::numerics
