#include "bench/least_squares.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/check.h"

namespace kv8::bench {

namespace {

// Solves min |A c - b| in place. a: [rows][cols], column by column.
std::vector<double> solve_by_qr(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t cols = a.size();
  const size_t rows = b.size();
  std::vector<double> diagonal(cols);
  for (size_t k = 0; k < cols; ++k) {
    // A reflection that turns column k, from row k on, into a multiple of the first unit vector.
    std::vector<double>& v = a[k];
    double norm = 0;
    for (size_t i = k; i < rows; ++i) norm = std::hypot(norm, v[i]);
    const double alpha = v[k] > 0 ? -norm : norm;
    diagonal[k] = alpha;
    v[k] -= alpha;
    double squared = 0;
    for (size_t i = k; i < rows; ++i) squared += v[i] * v[i];
    const auto reflect = [&](std::vector<double>& column) {
      double dot = 0;
      for (size_t i = k; i < rows; ++i) dot += v[i] * column[i];
      for (size_t i = k; i < rows; ++i) column[i] -= 2 * dot / squared * v[i];
    };
    for (size_t j = k + 1; j < cols; ++j) reflect(a[j]);
    reflect(b);
  }
  std::vector<double> c(cols);
  for (size_t k = cols; k-- > 0;) {
    double sum = b[k];
    for (size_t j = k + 1; j < cols; ++j) sum -= a[j][k] * c[j];
    c[k] = sum / diagonal[k];
  }
  return c;
}

}  // namespace

double PolynomialFit::at(double x) const {
  double y = 0;
  for (size_t k = coefficients.size(); k-- > 0;) y = y * x + coefficients[k];
  return y;
}

std::optional<PolynomialFit> fit_polynomial(std::span<const double> x, std::span<const double> y,
                                            int degree) {
  KV8_CHECK(x.size() == y.size() && degree >= 0, "{} x, {} y, degree {}", x.size(), y.size(), degree);
  const auto terms = static_cast<size_t>(degree) + 1;
  if (std::set<double>(x.begin(), x.end()).size() < terms) return std::nullopt;
  double scale = 0;
  for (const double value : x) scale = std::max(scale, std::abs(value));
  if (scale == 0) scale = 1;
  std::vector<std::vector<double>> columns(terms, std::vector<double>(x.size(), 1.0));
  for (size_t k = 1; k < terms; ++k) {
    for (size_t i = 0; i < x.size(); ++i) columns[k][i] = columns[k - 1][i] * (x[i] / scale);
  }
  PolynomialFit fit;
  fit.coefficients = solve_by_qr(std::move(columns), std::vector<double>(y.begin(), y.end()));
  double power = 1;
  for (double& coefficient : fit.coefficients) {
    coefficient /= power;
    power *= scale;
  }
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    fit.residuals.push_back(y[i] - fit.at(x[i]));
    squares += fit.residuals.back() * fit.residuals.back();
    fit.max_residual = std::max(fit.max_residual, std::abs(fit.residuals.back()));
  }
  fit.rms_residual = std::sqrt(squares / static_cast<double>(x.size()));
  return fit;
}

double median(std::vector<double> values) {
  KV8_CHECK(!values.empty(), "the median of nothing");
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace kv8::bench
