#include "bench/least_squares.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace kv8::bench {
namespace {

const std::vector<double> kLengths = {256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

std::vector<double> values_of(const std::vector<double>& x, const std::vector<double>& c) {
  std::vector<double> y;
  for (const double at : x) {
    double sum = 0;
    for (size_t k = 0; k < c.size(); ++k) sum += c[k] * std::pow(at, static_cast<double>(k));
    y.push_back(sum);
  }
  return y;
}

// vLLM's on an H100, Llama-3.1-8B: the sizes that this is for.
TEST(LeastSquares, FindsKnownPolynomials) {
  for (const auto& c : std::vector<std::vector<double>>{
           {6.44, 4.37e-5}, {6.58, 2.37e-5}, {17.0, 0.031, 2.1e-7}, {-3, 0, 5}, {7}}) {
    const auto fit = fit_polynomial(kLengths, values_of(kLengths, c), static_cast<int>(c.size()) - 1).value();
    ASSERT_EQ(fit.coefficients.size(), c.size());
    for (size_t k = 0; k < c.size(); ++k) {
      // A coefficient is as exact as its share of the largest value.
      const double share =
          fit.at(kLengths.back()) * 1e-13 / std::pow(kLengths.front(), static_cast<double>(k));
      EXPECT_NEAR(fit.coefficients[k], c[k], 1e-11 * std::abs(c[k]) + share) << k;
    }
    EXPECT_LT(fit.max_residual, 1e-12 * std::abs(fit.at(kLengths.back())));
  }
}

// By hand: the line through (0, 0), (1, 1), (2, 5) that misses least is y = 2.5 x - 0.5, by 0.5, -1 and 0.5.
TEST(LeastSquares, ResidualsAreWhatTheFitMisses) {
  const auto fit = fit_polynomial(std::vector<double>{0, 1, 2}, std::vector<double>{0, 1, 5}, 1).value();
  EXPECT_NEAR(fit.coefficients[0], -0.5, 1e-14);
  EXPECT_NEAR(fit.coefficients[1], 2.5, 1e-14);
  EXPECT_NEAR(fit.residuals[0], 0.5, 1e-14);
  EXPECT_NEAR(fit.residuals[1], -1.0, 1e-14);
  EXPECT_NEAR(fit.residuals[2], 0.5, 1e-14);
  EXPECT_NEAR(fit.max_residual, 1.0, 1e-14);
  EXPECT_NEAR(fit.rms_residual, std::sqrt(0.5), 1e-14);
}

// What makes it the least: the residuals are orthogonal to every power of x. And no change makes it smaller.
TEST(LeastSquares, NoPolynomialMissesLess) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(0, 0.05);
  for (int degree = 0; degree <= 3; ++degree) {
    std::vector<double> y = values_of(kLengths, {6.4, 2e-5, 1e-10});
    for (double& value : y) value += noise(random);
    const auto fit = fit_polynomial(kLengths, y, degree).value();
    double scale = 0;
    for (const double residual : fit.residuals) scale += std::abs(residual);
    for (int k = 0; k <= degree; ++k) {
      double dot = 0;
      for (size_t i = 0; i < y.size(); ++i)
        dot += fit.residuals[i] * std::pow(kLengths[i] / kLengths.back(), k);
      EXPECT_NEAR(dot, 0, 1e-10 * scale) << "degree " << degree << " power " << k;
    }
  }
}

TEST(LeastSquares, NeedsAsManyLengthsAsCoefficients) {
  EXPECT_FALSE(fit_polynomial(std::vector<double>{}, std::vector<double>{}, 0).has_value());
  EXPECT_FALSE(fit_polynomial(std::vector<double>{5}, std::vector<double>{1}, 1).has_value());
  EXPECT_FALSE(fit_polynomial(std::vector<double>{5, 5, 5}, std::vector<double>{1, 2, 3}, 1).has_value());
  EXPECT_TRUE(fit_polynomial(std::vector<double>{5, 5, 6}, std::vector<double>{1, 2, 3}, 1).has_value());
  EXPECT_TRUE(fit_polynomial(std::vector<double>{0}, std::vector<double>{1}, 0).has_value());
}

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 100, 2}), 3);
}

}  // namespace
}  // namespace kv8::bench
