#include "bench/latency.h"

#include <algorithm>
#include <chrono>

#include "bench/prompts.h"
#include "core/check.h"

namespace kv8::bench {

namespace {

constexpr double kMilliseconds = 1e3;

struct Run {
  double ttft = 0;           // ms
  std::vector<double> gaps;  // ms
};

Status validate(std::span<const std::unique_ptr<Subject>> subjects, const LatencyOptions& options) {
  KV8_CHECK(!subjects.empty() && options.vocab > 0, "{} subjects, vocabulary {}", subjects.size(),
            options.vocab);
  const auto refuse = [](const char* what, const char* range) {
    return make_error(ErrorCode::invalid_argument, "{}: expected {}", what, range);
  };
  if (options.prompt_lengths.empty() || options.prompt_lengths.front() < 1)
    return refuse("prompt lengths", "at least one, of 1 token or more");
  if (options.output_tokens < 2)
    return refuse("output tokens", "2 or more, the second of which has a gap before it");
  if (options.rounds < 1) return refuse("rounds", "1 or more");
  if (options.warmups < 0) return refuse("warm-up runs", "0 or more");
  return {};
}

class Measurement {
 public:
  Measurement(std::span<const std::unique_ptr<Subject>> subjects, const LatencyOptions& options)
      : subjects_(subjects), options_(options), runs_(subjects.size()) {
    for (auto& by_length : runs_) by_length.resize(options.prompt_lengths.size());
    for (const int64_t length : options.prompt_lengths) total_ += length + options.output_tokens;
    total_ *= options.rounds;
    total_ += options.warmups * (options.prompt_lengths.front() + options.output_tokens);
    total_ *= static_cast<int64_t>(subjects.size());
  }

  // cancelled if the user ended it; what was measured until then is kept.
  Status run() {
    for (int i = 0; i < options_.warmups; ++i) {
      for (const auto& subject : subjects_) {
        KV8_RETURN_IF_ERROR(run_once(*subject, options_.prompt_lengths.front()));
      }
    }
    for (int round = 0; round < options_.rounds; ++round) {
      for (size_t length = 0; length < options_.prompt_lengths.size(); ++length) {
        for (size_t i = 0; i < subjects_.size(); ++i) {
          const size_t subject = round % 2 == 0 ? i : subjects_.size() - 1 - i;
          stream_ = 1 + static_cast<uint64_t>(round) * options_.prompt_lengths.size() + length;
          KV8_ASSIGN_OR_RETURN(Run run, run_once(*subjects_[subject], options_.prompt_lengths[length]));
          runs_[subject][length].push_back(std::move(run));
        }
      }
    }
    return {};
  }

  const std::vector<Run>& runs(size_t subject, size_t length) const { return runs_[subject][length]; }

 private:
  double now() const {
    if (options_.now) return options_.now();
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  bool cancelled() const {
    return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
  }

  void tell(int64_t done) const {
    if (options_.progress) options_.progress(done, total_);
  }

  Expected<Run> run_once(Subject& subject, int64_t length) {
    const auto cancel = [&] { return make_error(ErrorCode::cancelled, "interrupted"); };
    if (cancelled()) return cancel();
    const std::vector<int32_t> prompt = random_prompt(length, options_.vocab, options_.seed, stream_);
    Run run;
    double last = now();
    const Status prefilled = subject.prefill(prompt, [&](int64_t done) {
      tell(done_ + done);
      return !cancelled();
    });
    run.ttft = (now() - last) * kMilliseconds;
    last += run.ttft / kMilliseconds;
    Status status = prefilled;
    for (int64_t i = 1; status && i < options_.output_tokens; ++i) {
      if (cancelled()) status = cancel();
      if (status) status = subject.step();
      const double time = now();
      run.gaps.push_back((time - last) * kMilliseconds);
      last = time;
    }
    subject.finish();
    if (!status) return tl::make_unexpected(std::move(status).error());
    done_ += length + options_.output_tokens;
    tell(done_);
    return run;
  }

  std::span<const std::unique_ptr<Subject>> subjects_;
  const LatencyOptions& options_;
  std::vector<std::vector<std::vector<Run>>> runs_;  // [subject][length][round]
  uint64_t stream_ = 0;                              // of the prompts; 0: warm-up
  int64_t done_ = 0;
  int64_t total_ = 0;
};

LatencyPoint summarise(int64_t length, const std::vector<Run>& runs) {
  std::vector<double> ttfts;
  std::vector<double> gaps;
  std::vector<double> round_itls;
  for (const Run& run : runs) {
    ttfts.push_back(run.ttft);
    gaps.insert(gaps.end(), run.gaps.begin(), run.gaps.end());
    round_itls.push_back(median(run.gaps));
  }
  const auto spread = [](const std::vector<double>& of_median, const std::vector<double>& of_range) {
    return Spread{median(of_median), *std::ranges::min_element(of_range),
                  *std::ranges::max_element(of_range)};
  };
  return {length, static_cast<int>(runs.size()), spread(ttfts, ttfts), spread(gaps, round_itls)};
}

SubjectLatency analyse(const SubjectInfo& info, std::vector<LatencyPoint> points) {
  SubjectLatency result;
  result.info = info;
  std::vector<double> lengths;
  std::vector<double> ttfts;
  std::vector<double> itls;
  for (const LatencyPoint& point : points) {
    lengths.push_back(static_cast<double>(point.prompt_tokens));
    ttfts.push_back(point.ttft.median);
    itls.push_back(point.itl.median);
  }
  result.points = std::move(points);
  result.itl = fit_polynomial(lengths, itls, 1);
  result.ttft = fit_polynomial(lengths, ttfts, 2);
  return result;
}

}  // namespace

std::optional<double> break_even(const PolynomialFit& subject, const PolynomialFit& baseline) {
  const double intercept = subject.coefficients[0] - baseline.coefficients[0];
  const double slope = baseline.coefficients[1] - subject.coefficients[1];  // what it gains with each token
  if (slope > 0) return std::max(intercept / slope, 0.0);
  return slope == 0 && intercept < 0 ? std::optional<double>(0.0) : std::nullopt;
}

std::vector<Comparison> compare(const std::vector<SubjectLatency>& subjects) {
  std::vector<Comparison> comparisons;
  const auto baseline =
      std::ranges::find_if(subjects, [](const SubjectLatency& one) { return !one.info.eight_bit; });
  if (baseline == subjects.end() || !baseline->itl) return comparisons;
  for (size_t index = 0; index < subjects.size(); ++index) {
    const SubjectLatency& subject = subjects[index];
    if (!subject.info.eight_bit || !subject.itl) continue;
    Comparison one;
    one.subject = index;
    one.baseline = static_cast<size_t>(baseline - subjects.begin());
    one.slope_ratio = subject.itl->coefficients[1] / baseline->itl->coefficients[1];
    one.intercept_difference = subject.itl->coefficients[0] - baseline->itl->coefficients[0];
    if (subject.ttft && baseline->ttft)
      one.quadratic_ratio = subject.ttft->coefficients[2] / baseline->ttft->coefficients[2];
    one.break_even = break_even(*subject.itl, *baseline->itl);
    one.bytes_ratio =
        static_cast<double>(subject.info.token_bytes) / static_cast<double>(baseline->info.token_bytes);
    comparisons.push_back(one);
  }
  return comparisons;
}

Expected<LatencyReport> measure_latency(std::span<const std::unique_ptr<Subject>> subjects,
                                        const LatencyOptions& options) {
  KV8_RETURN_IF_ERROR(validate(subjects, options));
  Measurement measurement(subjects, options);
  const Status status = measurement.run();
  if (!status && status.error().code != ErrorCode::cancelled) return tl::make_unexpected(status.error());
  LatencyReport report;
  report.interrupted = !status;
  bool any = false;
  for (size_t subject = 0; subject < subjects.size(); ++subject) {
    std::vector<LatencyPoint> points;
    for (size_t length = 0; length < options.prompt_lengths.size(); ++length) {
      const std::vector<Run>& runs = measurement.runs(subject, length);
      if (!runs.empty()) points.push_back(summarise(options.prompt_lengths[length], runs));
    }
    any = any || !points.empty();
    report.subjects.push_back(analyse(subjects[subject]->info(), std::move(points)));
  }
  if (!any) return make_error(ErrorCode::cancelled, "interrupted before anything was measured");
  report.comparisons = compare(report.subjects);
  return report;
}

}  // namespace kv8::bench
