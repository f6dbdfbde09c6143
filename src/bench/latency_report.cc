#include "bench/latency_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/readable.h"

namespace kv8::bench {

namespace {

std::string title(const LatencyReport& report, const LatencyOptions& options, const LatencyContext& context) {
  return fmt::format("{} on {}\nOne sequence at a time, {} output tokens, medians of {} rounds{}.\n",
                     context.model, context.machine, options.output_tokens, options.rounds,
                     report.interrupted ? ", as far as they came before the interruption" : "");
}

const LatencyPoint* find_point(const SubjectLatency& subject, int64_t length) {
  const auto point = std::ranges::find(subject.points, length, &LatencyPoint::prompt_tokens);
  return point == subject.points.end() ? nullptr : &*point;
}

std::string points_table(const LatencyReport& report, const LatencyOptions& options) {
  size_t width = 10;
  for (const SubjectLatency& subject : report.subjects) width = std::max(width, subject.info.name.size());
  const size_t block = report.subjects.size() * (width + 2);
  std::string out =
      fmt::format("{:>10}  {:<{}}    {}\n{:>10}", "prompt", "  TTFT, ms", block - 2, "ITL, ms", "tokens");
  const auto names = [&] {
    for (const SubjectLatency& subject : report.subjects)
      out += fmt::format("  {:>{}}", subject.info.name, width);
  };
  names();
  out += "  ";
  names();
  out += "\n";
  for (const int64_t length : options.prompt_lengths) {
    out += fmt::format("{:>10}", with_thousands(length));
    for (const auto quantity : {&LatencyPoint::ttft, &LatencyPoint::itl}) {
      if (quantity == &LatencyPoint::itl) out += "  ";
      for (const SubjectLatency& subject : report.subjects) {
        const LatencyPoint* point = find_point(subject, length);
        const std::string text = point == nullptr ? "-" : fmt::format("{:.3f}", (point->*quantity).median);
        out += fmt::format("  {:>{}}", text, width);
      }
    }
    out += "\n";
  }
  return out;
}

std::string fits(const LatencyReport& report) {
  size_t width = 4;
  for (const SubjectLatency& subject : report.subjects) width = std::max(width, subject.info.name.size());
  std::string itl = "ITL = slope * L + intercept\n";
  std::string ttft = "TTFT = a * L^2 + b * L + c\n";
  std::string cache = "Cache\n";
  for (const SubjectLatency& subject : report.subjects) {
    const std::string& name = subject.info.name;
    itl += subject.itl ? fmt::format(
                             "  {:<{}}  slope {:.3e} ms/token, intercept {:.3f} ms; residuals rms {:.3f}, at "
                             "most {:.3f} ms\n",
                             name, width, subject.itl->coefficients[1], subject.itl->coefficients[0],
                             subject.itl->rms_residual, subject.itl->max_residual)
                       : fmt::format("  {:<{}}  needs two prompt lengths\n", name, width);
    ttft += subject.ttft
                ? fmt::format(
                      "  {:<{}}  a {:.3e} ms/token^2, b {:.3e} ms/token, c {:.2f} ms; residuals rms "
                      "{:.2f}, at most {:.2f} ms\n",
                      name, width, subject.ttft->coefficients[2], subject.ttft->coefficients[1],
                      subject.ttft->coefficients[0], subject.ttft->rms_residual, subject.ttft->max_residual)
                : fmt::format("  {:<{}}  needs three prompt lengths\n", name, width);
    cache += fmt::format(
        "  {:<{}}  {} bytes a token{}: {}\n", name, width, with_thousands(subject.info.token_bytes),
        subject.info.window_bytes > 0
            ? fmt::format(", windows {} at most", human_bytes(static_cast<double>(subject.info.window_bytes)))
            : "",
        subject.info.description);
  }
  return itl + "\n" + ttft + "\n" + cache;
}

std::string comparisons(const LatencyReport& report) {
  std::string out;
  for (const Comparison& one : report.comparisons) {
    out += fmt::format("\n{} beside {}\n", report.subjects[one.subject].info.name,
                       report.subjects[one.baseline].info.name);
    out += fmt::format("  ratio of ITL slopes   {:.3f}\n", one.slope_ratio);
    out += fmt::format("  intercept             {:+.3f} ms\n", one.intercept_difference);
    out += fmt::format("  tokens come faster    {}\n", break_even_text(one.break_even));
    if (one.quadratic_ratio) out += fmt::format("  ratio of TTFT's a     {:.3f}\n", *one.quadratic_ratio);
    out += fmt::format("  cache bytes per token {:.3f} times as many\n", one.bytes_ratio);
  }
  return out;
}

Json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"low", spread.low}, {"high", spread.high}};
}

Json optional_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json fit_json(const std::optional<PolynomialFit>& fit, const std::vector<const char*>& names) {
  if (!fit) return nullptr;
  Json json = {{"residuals_ms", fit->residuals},
               {"residual_rms_ms", fit->rms_residual},
               {"residual_max_ms", fit->max_residual}};
  for (size_t i = 0; i < names.size(); ++i) json[names[i]] = fit->coefficients[i];
  return json;
}

}  // namespace

std::string break_even_text(const std::optional<double>& break_even) {
  if (!break_even) return "never";
  if (*break_even == 0) return "from the first token on";
  // More than any context: the slopes are equal as far as can be told.
  if (*break_even > 1e12) return "never";
  return fmt::format("from {} tokens on", with_thousands(std::llround(*break_even)));
}

std::string latency_table(const LatencyReport& report, const LatencyOptions& options,
                          const LatencyContext& context) {
  return title(report, options, context) + "\n" + points_table(report, options) + "\n" + fits(report) +
         comparisons(report);
}

Json latency_json(const LatencyReport& report, const LatencyOptions& options, const LatencyContext& context) {
  Json subjects = Json::array();
  for (const SubjectLatency& subject : report.subjects) {
    Json points = Json::array();
    for (const LatencyPoint& point : subject.points) {
      points.push_back({{"prompt_tokens", point.prompt_tokens},
                        {"rounds", point.rounds},
                        {"ttft_ms", spread_json(point.ttft)},
                        {"itl_ms", spread_json(point.itl)}});
    }
    subjects.push_back({{"name", subject.info.name},
                        {"description", subject.info.description},
                        {"bytes_per_token", subject.info.token_bytes},
                        {"window_bytes_per_sequence", subject.info.window_bytes},
                        {"points", points},
                        {"itl_fit", fit_json(subject.itl, {"intercept_ms", "slope_ms_per_token"})},
                        {"ttft_fit", fit_json(subject.ttft, {"c_ms", "b_ms_per_token", "a_ms_per_token2"})}});
  }
  Json beside = Json::array();
  for (const Comparison& one : report.comparisons) {
    beside.push_back({{"subject", report.subjects[one.subject].info.name},
                      {"baseline", report.subjects[one.baseline].info.name},
                      {"slope_ratio", optional_json(one.slope_ratio)},
                      {"intercept_difference_ms", one.intercept_difference},
                      {"break_even_tokens", optional_json(one.break_even)},
                      {"ttft_quadratic_ratio", optional_json(one.quadratic_ratio)},
                      {"cache_bytes_ratio", optional_json(one.bytes_ratio)}});
  }
  return {{"benchmark", "latency"},
          {"model", context.model},
          {"machine", context.machine},
          {"date", context.date},
          {"command", context.command},
          {"concurrency", 1},
          {"prompt_lengths", options.prompt_lengths},
          {"output_tokens", options.output_tokens},
          {"rounds", options.rounds},
          {"warmups", options.warmups},
          {"seed", options.seed},
          {"interrupted", report.interrupted},
          {"subjects", subjects},
          {"comparisons", beside}};
}

}  // namespace kv8::bench
