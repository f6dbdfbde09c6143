#include "bench/latency.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "bench/fake_subject.h"

namespace kv8::bench {
namespace {

TEST(Latency, FindsWhatTheSubjectsCost) {
  FakeBench fake;
  const LatencyReport report = fake.measure().value();
  EXPECT_FALSE(report.interrupted);
  ASSERT_EQ(report.subjects.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const FakeCosts& costs = i == 0 ? kBf16 : kFp8;
    const SubjectLatency& subject = report.subjects[i];
    ASSERT_EQ(subject.points.size(), 4U);
    EXPECT_EQ(subject.points[3].prompt_tokens, 131072);
    EXPECT_EQ(subject.points[3].rounds, 3);
    EXPECT_NEAR(subject.points[3].itl.median, costs.slope * 131072 + costs.intercept, 1e-8);
    EXPECT_NEAR(subject.itl->coefficients[0], costs.intercept, 1e-7);
    EXPECT_NEAR(subject.itl->coefficients[1], costs.slope, 1e-11);
    EXPECT_NEAR(subject.ttft->coefficients[0], costs.c, 1e-6);
    EXPECT_NEAR(subject.ttft->coefficients[1], costs.b, 1e-9);
    EXPECT_NEAR(subject.ttft->coefficients[2], costs.a, 1e-13);
    EXPECT_LT(subject.ttft->max_residual, 1e-6);
  }
  ASSERT_EQ(report.comparisons.size(), 1U);
  const Comparison& one = report.comparisons[0];
  EXPECT_EQ(one.subject, 1U);
  EXPECT_EQ(one.baseline, 0U);
  EXPECT_NEAR(one.slope_ratio, 2.37 / 4.37, 1e-6);
  EXPECT_NEAR(one.intercept_difference, 0.14, 1e-7);
  EXPECT_NEAR(*one.break_even, 7000, 0.1);
  EXPECT_NEAR(*one.quadratic_ratio, 0.75, 1e-6);
  EXPECT_EQ(one.bytes_ratio, 0.5);
}

TEST(Latency, SubjectsTakeTurnsWithTheSamePrompts) {
  FakeBench fake;
  fake.options.prompt_lengths = {10, 20};
  fake.options.rounds = 2;
  ASSERT_TRUE(fake.measure().has_value());
  EXPECT_EQ(fake.clock.log, (std::vector<std::string>{"bf16 10", "fp8 10",                       // warm-up
                                                      "bf16 10", "fp8 10", "bf16 20", "fp8 20",  //
                                                      "fp8 10", "bf16 10", "fp8 20", "bf16 20"}));
  // Each prompt goes to both and to no other run, nor is it the beginning of another.
  std::set<std::pair<int32_t, int32_t>> beginnings;
  for (size_t i = 0; i < fake.clock.prompts.size(); i += 2) {
    EXPECT_EQ(fake.clock.prompts[i], fake.clock.prompts[i + 1]);
    EXPECT_TRUE(beginnings.insert({fake.clock.prompts[i][0], fake.clock.prompts[i][1]}).second);
  }
  for (const FakeSubject* subject : fake.fakes) {
    EXPECT_EQ(subject->finished, 5);
    EXPECT_EQ(subject->steps, 5 * 4);  // the first token comes out of the prefill
  }
}

// One round in three, and one gap in four, takes ten times as long: medians don't see it, ranges do.
TEST(Latency, MediansStandOutliers) {
  FakeBench fake;
  fake.options.warmups = 0;
  for (FakeSubject* subject : fake.fakes) {
    subject->disturbance = [](size_t call) { return call % 4 == 3 ? 10.0 : 1.0; };
  }
  fake.options.prompt_lengths = {1024};
  const LatencyReport report = fake.measure().value();
  const LatencyPoint& point = report.subjects[0].points.at(0);  // its prompts are calls 1, 4 and 5
  EXPECT_NEAR(point.itl.median, kBf16.slope * 1024 + kBf16.intercept, 1e-8);
  const double ttft = kFp8.a * 1024 * 1024 + kFp8.b * 1024 + kFp8.c;
  EXPECT_NEAR(report.subjects[1].points.at(0).ttft.median, ttft, 1e-8);  // calls 2, 3 and 6
  EXPECT_NEAR(report.subjects[1].points.at(0).ttft.high, 10 * ttft, 1e-7);
  EXPECT_NEAR(report.subjects[1].points.at(0).ttft.low, ttft, 1e-8);
  EXPECT_FALSE(report.subjects[0].itl.has_value());  // one length is no line
  EXPECT_TRUE(report.comparisons.empty());
}

TEST(Latency, InterruptedItReportsWhatThereIs) {
  FakeBench fake;
  std::atomic<bool> cancel{false};
  fake.options.cancel = &cancel;
  fake.options.warmups = 0;
  // In the third length of the second round; the run that was interrupted doesn't count.
  fake.fakes[0]->on_step = [&](int64_t steps) -> Status {
    if (steps == 4 * 6 + 2) cancel = true;
    return {};
  };
  const LatencyReport report = fake.measure().value();
  EXPECT_TRUE(report.interrupted);
  const auto rounds = [&](size_t subject) {
    std::vector<int> counts;
    for (const LatencyPoint& point : report.subjects[subject].points) counts.push_back(point.rounds);
    return counts;
  };
  EXPECT_EQ(rounds(0), (std::vector<int>{2, 2, 1, 1}));
  EXPECT_EQ(rounds(1), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(fake.fakes[0]->finished, 7);  // that run's sequence is given back too
  EXPECT_EQ(report.comparisons.size(), 1U);
}

TEST(Latency, InterruptedBeforeAnythingItIsAnError) {
  FakeBench fake;
  const std::atomic<bool> cancel{true};
  fake.options.cancel = &cancel;
  const auto report = fake.measure();
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(fake.clock.log.empty());
}

TEST(Latency, AFailingSubjectIsAnError) {
  FakeBench fake;
  fake.fakes[1]->on_step = [](int64_t) -> Status { return make_error(ErrorCode::out_of_memory, "full"); };
  const auto report = fake.measure();
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().message, "full");
  EXPECT_EQ(fake.fakes[1]->finished, 1);
}

TEST(Latency, ProgressReachesItsEndAndNeverFalls) {
  FakeBench fake;
  int64_t last = 0;
  int64_t end = 0;
  fake.options.progress = [&](int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_LE(done, total);
    last = done;
    end = total;
  };
  ASSERT_TRUE(fake.measure().has_value());
  EXPECT_EQ(last, end);
  EXPECT_EQ(end, 2 * (3 * (256 + 1024 + 8192 + 131072 + 4 * 5) + 256 + 5));
}

TEST(Latency, RefusesWhatMakesNoSense) {
  const auto refused = [](auto change) {
    FakeBench fake;
    change(fake.options);
    const auto report = fake.measure();
    return !report && report.error().code == ErrorCode::invalid_argument && fake.clock.log.empty();
  };
  EXPECT_TRUE(refused([](LatencyOptions& options) { options.prompt_lengths.clear(); }));
  EXPECT_TRUE(refused([](LatencyOptions& options) { options.prompt_lengths = {0, 5}; }));
  EXPECT_TRUE(refused([](LatencyOptions& options) { options.output_tokens = 1; }));
  EXPECT_TRUE(refused([](LatencyOptions& options) { options.rounds = 0; }));
  EXPECT_TRUE(refused([](LatencyOptions& options) { options.warmups = -1; }));
}

PolynomialFit line(double intercept, double slope) {
  PolynomialFit fit;
  fit.coefficients = {intercept, slope};
  return fit;
}

TEST(BreakEven, WhereTheLinesCross) {
  EXPECT_NEAR(break_even(line(6.58, 2.37e-5), line(6.44, 4.37e-5)).value(), 7000, 1e-6);
  EXPECT_EQ(break_even(line(6.0, 2e-5), line(6.44, 4e-5)), 0.0);            // faster from the start
  EXPECT_EQ(break_even(line(6.0, 4e-5), line(6.44, 4e-5)), 0.0);            // by the same at any length
  EXPECT_EQ(break_even(line(6.44, 4e-5), line(6.44, 4e-5)), std::nullopt);  // the same
  EXPECT_EQ(break_even(line(6.0, 5e-5), line(6.44, 4e-5)), std::nullopt);   // slower in the end
  EXPECT_EQ(break_even(line(7.0, 5e-5), line(6.44, 4e-5)), std::nullopt);
}

// The baseline is the first that isn't 8-bit, wherever it stands.
TEST(Comparisons, AreWithTheFirstThatIsNotEightBit) {
  FakeBench fake;
  std::swap(fake.subjects[0], fake.subjects[1]);
  fake.add("fp8-skip-windows", true, kFp8);
  fake.add("f32", false, kBf16);
  const LatencyReport report = fake.measure().value();
  ASSERT_EQ(report.comparisons.size(), 2U);
  EXPECT_EQ(report.comparisons[0].subject, 0U);
  EXPECT_EQ(report.comparisons[1].subject, 2U);
  EXPECT_EQ(report.comparisons[0].baseline, 1U);
  EXPECT_EQ(report.comparisons[1].baseline, 1U);
}

}  // namespace
}  // namespace kv8::bench
