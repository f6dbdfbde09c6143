// Polynomials through measured points, by least squares.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace kv8::bench {

struct PolynomialFit {
  std::vector<double> coefficients;  // y = c[0] + c[1] x + c[2] x^2 ...
  std::vector<double> residuals;     // y - fit(x), one per point
  double rms_residual = 0;
  double max_residual = 0;  // largest |residual|

  double at(double x) const;
};

// The polynomial of `degree` with the least sum of squared residuals over the points (x[i], y[i]), in float64
// by Householder QR with x scaled to [-1, 1], so that contexts from 256 to a million tokens don't cost
// digits. Nothing if there are fewer than degree + 1 different x.
std::optional<PolynomialFit> fit_polynomial(std::span<const double> x, std::span<const double> y, int degree);

// The middle value, or the mean of the two middle ones. values must not be empty.
double median(std::vector<double> values);

}  // namespace kv8::bench
