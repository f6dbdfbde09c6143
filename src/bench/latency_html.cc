// The page: what it shows is what latency_table says, and the plots.
#include <cmath>

#include <fmt/format.h>

#include "bench/latency_report.h"
#include "bench/svg_plot.h"
#include "core/readable.h"

namespace kv8::bench {

namespace {

constexpr const char* kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #e3e6ea; --soft: #5b6470;
  --c0: #0b62c4; --c1: #c2470f; --c2: #17803d; --c3: #8139b8; --c4: #8a6d00; --c5: #b3205f; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #e6e9ed; --paper: #14171b; --faint: #2b3138; --soft: #9aa4b0;
    --c0: #6db0ff; --c1: #ff9a62; --c2: #63d28a; --c3: #c79bf2; --c4: #e0c04a; --c5: #ff8fbc; }}
}}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 56rem;
  margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; margin-bottom: 0; }} h2 {{ font-size: 1.15rem; margin-top: 2.5rem; }}
p.about {{ color: var(--soft); margin-top: .2rem; }}
code {{ font-size: .9em; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .8rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }}
th {{ color: var(--soft); font-weight: 600; }}
.tiles {{ display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }}
.tile {{ border: 1px solid var(--faint); border-radius: .5rem; padding: .7rem 1rem; min-width: 9rem; }}
.tile b {{ display: block; font-size: 1.3rem; }} .tile span {{ color: var(--soft); font-size: .9rem; }}
svg {{ width: 100%; height: auto; margin-top: 1rem; }}
.kv8-text {{ fill: var(--soft); font-size: 12px; }} .kv8-title {{ fill: var(--ink); font-size: 15px; font-weight: 600; }}
.kv8-grid {{ stroke: var(--faint); fill: none; }} .kv8-axis {{ stroke: var(--soft); fill: none; }}
.kv8-mark {{ stroke: var(--soft); stroke-dasharray: 5 4; fill: none; }}
.kv8-line {{ fill: none; stroke-width: 1.6; }} .kv8-dot {{ stroke: none; }}
.kv8-line.kv8-0 {{ stroke: var(--c0); }} .kv8-dot.kv8-0 {{ fill: var(--c0); }}
.kv8-line.kv8-1 {{ stroke: var(--c1); }} .kv8-dot.kv8-1 {{ fill: var(--c1); }}
.kv8-line.kv8-2 {{ stroke: var(--c2); }} .kv8-dot.kv8-2 {{ fill: var(--c2); }}
.kv8-line.kv8-3 {{ stroke: var(--c3); }} .kv8-dot.kv8-3 {{ fill: var(--c3); }}
.kv8-line.kv8-4 {{ stroke: var(--c4); }} .kv8-dot.kv8-4 {{ fill: var(--c4); }}
.kv8-line.kv8-5 {{ stroke: var(--c5); }} .kv8-dot.kv8-5 {{ fill: var(--c5); }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="about">{about}</p>
)";

constexpr int kColors = 6;
constexpr int kLinePoints = 65;

std::string row(const char* cell, const std::vector<std::string>& texts) {
  std::string out = "<tr>";
  for (const std::string& text : texts) out += fmt::format("<{}>{}</{}>", cell, escape_html(text), cell);
  return out + "</tr>\n";
}

using Quantity = Spread LatencyPoint::*;
using Fit = std::optional<PolynomialFit> SubjectLatency::*;

Plot plot_of(const LatencyReport& report, const std::string& title, PlotAxis y, bool log_x, Quantity quantity,
             Fit fit) {
  Plot plot;
  plot.title = title;
  plot.x = {"prompt tokens", log_x};
  plot.y = std::move(y);
  for (size_t i = 0; i < report.subjects.size(); ++i) {
    const SubjectLatency& subject = report.subjects[i];
    PlotSeries& series = plot.series.emplace_back();
    series.name = subject.info.name;
    series.color = static_cast<int>(i) % kColors;
    for (const LatencyPoint& point : subject.points) {
      const Spread& spread = point.*quantity;
      series.points.push_back(
          {static_cast<double>(point.prompt_tokens), spread.median, spread.low, spread.high,
           fmt::format("{}, {} tokens: {:.3f} ms ({:.3f} to {:.3f})", subject.info.name,
                       with_thousands(point.prompt_tokens), spread.median, spread.low, spread.high)});
    }
    const std::optional<PolynomialFit>& line = subject.*fit;
    if (!line) continue;
    const double first = static_cast<double>(subject.points.front().prompt_tokens);
    const double last = static_cast<double>(subject.points.back().prompt_tokens);
    for (int k = 0; k < kLinePoints; ++k) {
      const double part = static_cast<double>(k) / (kLinePoints - 1);
      const double x = log_x ? first * std::pow(last / first, part) : first + (last - first) * part;
      const double value = line->at(x);
      if (!plot.y.log || value > 0) series.line.emplace_back(x, value);
    }
  }
  return plot;
}

// What the fits miss, in per cent of the measurement.
Plot residual_plot(const LatencyReport& report) {
  Plot plot;
  plot.title = "ITL: measurement less fit";
  plot.x = {"prompt tokens", true};
  plot.y = {"% of ITL", false};
  for (size_t i = 0; i < report.subjects.size(); ++i) {
    const SubjectLatency& subject = report.subjects[i];
    PlotSeries& series = plot.series.emplace_back();
    series.name = subject.info.name;
    series.color = static_cast<int>(i) % kColors;
    for (size_t k = 0; subject.itl && k < subject.points.size(); ++k) {
      const LatencyPoint& point = subject.points[k];
      const double percent = 100 * subject.itl->residuals[k] / point.itl.median;
      series.points.push_back(
          {static_cast<double>(point.prompt_tokens), percent, percent, percent,
           fmt::format("{}, {} tokens: {:+.2f} % ({:+.4f} ms)", subject.info.name,
                       with_thousands(point.prompt_tokens), percent, subject.itl->residuals[k])});
    }
  }
  return plot;
}

std::string tiles(const LatencyReport& report) {
  std::string out;
  for (const Comparison& one : report.comparisons) {
    out += fmt::format("<h2>{} beside {}</h2>\n<div class=\"tiles\">",
                       escape_html(report.subjects[one.subject].info.name),
                       escape_html(report.subjects[one.baseline].info.name));
    const auto tile = [&](const std::string& value, const char* what) {
      out += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span></div>", escape_html(value), what);
    };
    tile(fmt::format("{:.3f}", one.slope_ratio), "ratio of ITL slopes");
    tile(fmt::format("{:+.3f} ms", one.intercept_difference), "intercept");
    tile(break_even_text(one.break_even), "tokens come faster");
    if (one.quadratic_ratio) tile(fmt::format("{:.3f}", *one.quadratic_ratio), "ratio of TTFT's a");
    tile(fmt::format("{:.3f}", one.bytes_ratio), "ratio of cache bytes per token");
    out += "</div>\n";
  }
  return out;
}

std::string fit_table(const LatencyReport& report) {
  std::string out =
      "<h2>Fits</h2>\n<p>L: tokens of the prompt. ITL = slope \u00b7 L + intercept; TTFT = a \u00b7 L\u00b2 "
      "+ b \u00b7 L + "
      "c, by least squares over the medians.</p>\n<div class=\"wide\"><table>\n";
  out += row("th", {"", "slope, ms/token", "intercept, ms", "residual rms", "a, ms/token\u00b2",
                    "b, ms/token", "c, ms", "residual rms", "cache bytes/token"});
  for (const SubjectLatency& subject : report.subjects) {
    std::vector<std::string> cells = {subject.info.name};
    if (subject.itl) {
      cells.push_back(fmt::format("{:.3e}", subject.itl->coefficients[1]));
      cells.push_back(fmt::format("{:.3f}", subject.itl->coefficients[0]));
      cells.push_back(fmt::format("{:.3f}", subject.itl->rms_residual));
    } else {
      cells.insert(cells.end(), 3, "-");
    }
    if (subject.ttft) {
      for (const size_t k : {2U, 1U}) cells.push_back(fmt::format("{:.3e}", subject.ttft->coefficients[k]));
      cells.push_back(fmt::format("{:.2f}", subject.ttft->coefficients[0]));
      cells.push_back(fmt::format("{:.2f}", subject.ttft->rms_residual));
    } else {
      cells.insert(cells.end(), 4, "-");
    }
    cells.push_back(with_thousands(subject.info.token_bytes));
    out += row("td", cells);
  }
  return out + "</table></div>\n";
}

std::string point_table(const LatencyReport& report) {
  std::string out =
      "<h2>Medians</h2>\n<p>In brackets the least and largest of the rounds.</p>\n<div "
      "class=\"wide\"><table>\n";
  out += row("th", {"subject", "prompt tokens", "rounds", "TTFT, ms", "ITL, ms"});
  for (const SubjectLatency& subject : report.subjects) {
    for (const LatencyPoint& point : subject.points) {
      const auto text = [](const Spread& spread) {
        return fmt::format("{:.3f} ({:.3f} to {:.3f})", spread.median, spread.low, spread.high);
      };
      out += row("td", {subject.info.name, with_thousands(point.prompt_tokens), std::to_string(point.rounds),
                        text(point.ttft), text(point.itl)});
    }
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string latency_html(const LatencyReport& report, const LatencyOptions& options,
                         const LatencyContext& context) {
  const std::string about = fmt::format(
      "{}, {}. One sequence at a time, {} output tokens, medians of {} rounds{}.<br/><code>{}</code>",
      escape_html(context.machine), escape_html(context.date), options.output_tokens, options.rounds,
      report.interrupted ? ", as far as they came before the interruption" : "",
      escape_html(context.command));
  std::string out =
      fmt::format(fmt::runtime(kHead), fmt::arg("title", escape_html("Latency of " + context.model)),
                  fmt::arg("about", about));
  out += tiles(report);
  Plot itl = plot_of(report, "Time between tokens (ITL)", {"ms", false}, false, &LatencyPoint::itl,
                     &SubjectLatency::itl);
  const double at = report.comparisons.empty() ? 0.0 : report.comparisons.front().break_even.value_or(0);
  if (at > 0 && at < 1e12) {
    itl.mark = Plot::Mark{at, fmt::format("break-even: {} tokens", with_thousands(std::llround(at)))};
  }
  out += svg(itl);
  out += svg(plot_of(report, "Time to the first token (TTFT)", {"ms", true}, true, &LatencyPoint::ttft,
                     &SubjectLatency::ttft));
  out += svg(residual_plot(report));
  out += fit_table(report);
  out += point_table(report);
  return out + "</body>\n</html>\n";
}

}  // namespace kv8::bench
