// A plot as an SVG element: points with ranges, lines, a legend. Colours and fonts come from the page's style
// sheet (classes kv8-0 .. kv8-5, kv8-axis, kv8-grid, kv8-text), so that a page can be light or dark.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kv8::bench {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;  // of the range drawn through the point; equal to high: none
  double high = 0;
  std::string note;  // shown when the mouse rests on it
};

struct PlotSeries {
  std::string name;
  int color = 0;  // 0 to 5
  std::vector<PlotPoint> points;
  std::vector<std::pair<double, double>> line;
};

struct PlotAxis {
  std::string label;
  bool log = false;  // powers of two on x, of ten on y; values must be positive
};

struct Plot {
  std::string title;
  PlotAxis x;
  PlotAxis y;
  std::vector<PlotSeries> series;
  struct Mark {
    double x = 0;
    std::string label;
  };
  std::optional<Mark> mark;  // a vertical line
};

std::string svg(const Plot& plot);

// Round numbers that divide [low, high] into about `count` parts.
std::vector<double> linear_ticks(double low, double high, int count);

std::string escape_html(const std::string& text);

}  // namespace kv8::bench
