#include "bench/svg_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/readable.h"

namespace kv8::bench {

namespace {

constexpr double kWidth = 760;
constexpr double kHeight = 400;
constexpr double kLeft = 78;
constexpr double kRight = 16;
constexpr double kTop = 40;
constexpr double kBottom = 54;

// Maps values of an axis to the picture.
class Scale {
 public:
  Scale(double low, double high, bool log, double from, double to) : log_(log), from_(from), to_(to) {
    low_ = map(low);
    high_ = map(high);
    if (high_ <= low_) high_ = low_ + 1;
  }
  // Values far beyond the axis end near it: numbers in the file stay readable.
  double operator()(double value) const {
    const double part = log_ && value <= 0 ? 0.0 : (map(value) - low_) / (high_ - low_);
    return from_ + std::clamp(part, -1.0, 2.0) * (to_ - from_);
  }

 private:
  double map(double value) const { return log_ ? std::log(value) : value; }

  bool log_;
  double from_;
  double to_;
  double low_ = 0;
  double high_ = 1;
};

// The values of an axis: of a linear one 0 too, of a logarithmic one those that are positive.
struct Range {
  explicit Range(bool log_axis) : log(log_axis) {
    if (!log) low = high = 0;
  }
  void include(double value) {
    if (!std::isfinite(value) || (log && value <= 0)) return;
    if (empty()) low = high = value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }

  bool log;
  double low = 1;
  double high = 0;
};

std::vector<double> log_ticks(const Range& range, double base) {
  std::vector<double> ticks;
  const auto first = static_cast<int>(std::floor(std::log(range.low) / std::log(base) + 1e-9));
  const auto last = static_cast<int>(std::ceil(std::log(range.high) / std::log(base) - 1e-9));
  const int step = std::max((last - first) / 10, 1);
  for (int exponent = first; exponent <= last; exponent += step) ticks.push_back(std::pow(base, exponent));
  return ticks;
}

std::string tick_label(double value) {
  const double size = std::abs(value);
  if (size >= 1024 && std::fmod(value, 1024) == 0)
    return fmt::format("{}K", with_thousands(std::llround(value / 1024)));
  if (size >= 1000 && value == std::round(value) && size < 1e15) return with_thousands(std::llround(value));
  return fmt::format("{:.4g}", value);
}

void add_axes(std::string& out, const Plot& plot, const std::vector<double>& x_ticks,
              const std::vector<double>& y_ticks, const Scale& x, const Scale& y) {
  for (const double tick : y_ticks) {
    const double at = y(tick);
    if (at < kTop - 0.5 || at > kHeight - kBottom + 0.5) continue;
    out += fmt::format("<path class=\"kv8-grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", kLeft, at, kWidth - kRight);
    out += fmt::format("<text class=\"kv8-text\" text-anchor=\"end\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                       kLeft - 8, at + 4, tick_label(tick));
  }
  for (const double tick : x_ticks) {
    const double at = x(tick);
    if (at < kLeft - 0.5 || at > kWidth - kRight + 0.5) continue;
    out += fmt::format("<path class=\"kv8-grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", at, kTop, kHeight - kBottom);
    out +=
        fmt::format("<text class=\"kv8-text\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                    at, kHeight - kBottom + 18, tick_label(tick));
  }
  out += fmt::format("<path class=\"kv8-axis\" d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\"/>\n", kLeft, kTop,
                     kHeight - kBottom, kWidth - kRight);
  out += fmt::format("<text class=\"kv8-text\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 12, escape_html(plot.x.label));
  out += fmt::format(
      "<text class=\"kv8-text\" text-anchor=\"middle\" transform=\"translate(16 {:.1f}) "
      "rotate(-90)\">{}</text>\n",
      (kTop + kHeight - kBottom) / 2, escape_html(plot.y.label));
}

void add_series(std::string& out, const PlotSeries& series, const Scale& x, const Scale& y) {
  if (!series.line.empty()) {
    std::string path;
    for (const auto& [at_x, at_y] : series.line)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(at_x), y(at_y));
    out += fmt::format("<path class=\"kv8-line kv8-{}\" d=\"{}\"/>\n", series.color, path);
  }
  for (const PlotPoint& point : series.points) {
    if (point.high > point.low) {
      out += fmt::format("<path class=\"kv8-line kv8-{}\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", series.color,
                         x(point.x), y(point.low), y(point.high));
    }
    out += fmt::format(
        "<circle class=\"kv8-dot kv8-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}</title></circle>\n",
        series.color, x(point.x), y(point.y), escape_html(point.note));
  }
}

void add_legend(std::string& out, const Plot& plot) {
  double at = kLeft + 12;
  double row = kTop + 16;
  for (const PlotSeries& series : plot.series) {
    out += fmt::format("<circle class=\"kv8-dot kv8-{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>", series.color,
                       at, row - 4);
    out += fmt::format("<text class=\"kv8-text\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", at + 10, row,
                       escape_html(series.name));
    row += 18;
  }
}

void add_mark(std::string& out, const Plot::Mark& mark, const Scale& x) {
  const double at = x(mark.x);
  if (at < kLeft || at > kWidth - kRight) return;
  out += fmt::format("<path class=\"kv8-mark\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", at, kTop, kHeight - kBottom);
  const bool left = at > kWidth / 2;
  out += fmt::format("<text class=\"kv8-text\" text-anchor=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
                     left ? "end" : "start", at + (left ? -6 : 6), kHeight - kBottom - 8,
                     escape_html(mark.label));
}

}  // namespace

std::string escape_html(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::vector<double> linear_ticks(double low, double high, int count) {
  if (!(high > low)) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double step = power * (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1);
  std::vector<double> ticks;
  const double first = std::floor(low / step);
  for (int i = 0; (first + i - 1) * step < high; ++i) ticks.push_back((first + i) * step);
  return ticks;
}

std::string svg(const Plot& plot) {
  Range x_range(plot.x.log);
  Range y_range(plot.y.log);
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      x_range.include(point.x);
      for (const double y : {point.y, point.low, point.high}) y_range.include(y);
    }
    for (const auto& [x, y] : series.line) {
      x_range.include(x);
      y_range.include(y);
    }
  }
  if (x_range.empty()) x_range.include(1);
  if (y_range.empty()) y_range.include(1);
  const auto ticks = [](const Range& range, const PlotAxis& axis, double base) {
    return axis.log ? log_ticks(range, base) : linear_ticks(range.low, range.high, 6);
  };
  const std::vector<double> x_ticks = ticks(x_range, plot.x, 2);
  const std::vector<double> y_ticks = ticks(y_range, plot.y, 10);
  const Scale x(x_range.low, x_range.high, plot.x.log, kLeft, kWidth - kRight);
  const Scale y(y_ticks.front(), y_ticks.back(), plot.y.log, kHeight - kBottom, kTop);

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n"
      "<text class=\"kv8-title\" x=\"{:.1f}\" y=\"22\">{}</text>\n",
      kWidth, kHeight, escape_html(plot.title), kLeft, escape_html(plot.title));
  add_axes(out, plot, x_ticks, y_ticks, x, y);
  if (plot.mark) add_mark(out, *plot.mark, x);
  for (const PlotSeries& series : plot.series) add_series(out, series, x, y);
  add_legend(out, plot);
  return out + "</svg>\n";
}

}  // namespace kv8::bench
