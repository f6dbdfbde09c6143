// Time to the first token and between tokens, by prompt length, one sequence at a time, for several subjects
// that take turns in one process, so that whatever changes on the machine meets them alike.
//
//   TTFT  from the call with the prompt until the first token is known
//   ITL   from one token to the next, of all tokens after the first
//
// Both as the median over all rounds of a length (ITL: over all gaps). Then, L being the prompt's tokens,
//   ITL = slope * L + intercept, and TTFT = a * L^2 + b * L + c, by least squares over the medians.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/least_squares.h"
#include "bench/subject.h"
#include "core/error.h"

namespace kv8::bench {

struct LatencyOptions {
  std::vector<int64_t> prompt_lengths;  // ascending
  int64_t output_tokens = 128;          // the first one, and output_tokens - 1 gaps
  int rounds = 5;
  int warmups = 1;  // runs of the shortest prompt before the first round, not counted
  int64_t vocab = 0;
  uint64_t seed = 0;
  std::function<double()> now;                                // seconds; empty: the steady clock
  std::function<void(int64_t done, int64_t total)> progress;  // tokens, of all runs
  const std::atomic<bool>* cancel = nullptr;                  // set: ends with what was measured
};

struct Spread {  // of one quantity, in milliseconds
  double median = 0;
  double low = 0;  // over the rounds: of TTFT the least and largest, of ITL the rounds' medians
  double high = 0;
};

struct LatencyPoint {
  int64_t prompt_tokens = 0;
  int rounds = 0;
  Spread ttft;
  Spread itl;
};

struct SubjectLatency {
  SubjectInfo info;
  std::vector<LatencyPoint> points;   // ascending; lengths that were measured at least once
  std::optional<PolynomialFit> itl;   // ms over tokens, degree 1; nothing with too few lengths
  std::optional<PolynomialFit> ttft;  // degree 2
};

// A subject beside another.
struct Comparison {
  size_t subject = 0;  // indices into LatencyReport::subjects
  size_t baseline = 0;
  double slope_ratio = 0;                 // of ITL
  double intercept_difference = 0;        // ms
  std::optional<double> quadratic_ratio;  // of TTFT
  std::optional<double> break_even;       // tokens; 0 if from the start, nothing if never
  double bytes_ratio = 0;                 // of cache bytes per token
};

struct LatencyReport {
  std::vector<SubjectLatency> subjects;
  std::vector<Comparison>
      comparisons;  // each 8-bit subject beside the first that isn't, where both have fits
  bool interrupted = false;
};

// The prompt length from which the tokens of `subject` come faster than the baseline's, by their fits of ITL.
std::optional<double> break_even(const PolynomialFit& subject, const PolynomialFit& baseline);

std::vector<Comparison> compare(const std::vector<SubjectLatency>& subjects);

// In each round every length, and at each length every subject, forwards and backwards in turn; all subjects
// get the same prompts, each of which is used once. Errors: invalid_argument (options out of range),
// cancelled if nothing was measured, and whatever a subject returns.
Expected<LatencyReport> measure_latency(std::span<const std::unique_ptr<Subject>> subjects,
                                        const LatencyOptions& options);

}  // namespace kv8::bench
