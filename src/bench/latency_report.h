// A latency report as a table for the terminal, as JSON, and as a page of HTML with plots.
#pragma once

#include <string>

#include "bench/latency.h"
#include "core/json.h"

namespace kv8::bench {

// What was measured, in words.
struct LatencyContext {
  std::string model;
  std::string machine;  // the backend: "cpu (AVX2, 2 threads)"
  std::string date;     // ISO 8601
  std::string command;
};

std::string latency_table(const LatencyReport& report, const LatencyOptions& options,
                          const LatencyContext& context);
Json latency_json(const LatencyReport& report, const LatencyOptions& options, const LatencyContext& context);
// One file that needs nothing else: the plots are inline SVG, and there are no scripts.
std::string latency_html(const LatencyReport& report, const LatencyOptions& options,
                         const LatencyContext& context);

// Sentences for people: "from 7,010 tokens on".
std::string break_even_text(const std::optional<double>& break_even);

}  // namespace kv8::bench
