// Subjects that take as long as a polynomial says, on a clock that they move themselves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/latency.h"

namespace kv8::bench {

struct FakeClock {
  double seconds = 1000;
  std::vector<std::string> log;  // "bf16 256", one entry per prompt
  std::vector<std::vector<int32_t>> prompts;
};

struct FakeCosts {  // ms, of L prompt tokens
  double a = 0;
  double b = 0;
  double c = 0;
  double slope = 0;
  double intercept = 0;
};

class FakeSubject : public Subject {
 public:
  FakeSubject(FakeClock& clock, std::string name, bool eight_bit, FakeCosts costs)
      : clock_(clock), costs_(costs) {
    info_.description = "a cache of " + name;
    info_.name = std::move(name);
    info_.token_bytes = eight_bit ? 65'536 : 131'072;
    info_.eight_bit = eight_bit;
  }

  const SubjectInfo& info() const override { return info_; }

  Status prefill(std::span<const int32_t> prompt, const Progress& progress) override {
    clock_.log.push_back(info_.name + " " + std::to_string(prompt.size()));
    clock_.prompts.emplace_back(prompt.begin(), prompt.end());
    length_ = static_cast<double>(prompt.size());
    clock_.seconds += (costs_.a * length_ * length_ + costs_.b * length_ + costs_.c) * 1e-3 *
                      disturbance(clock_.log.size());
    if (!progress(static_cast<int64_t>(prompt.size()))) return make_error(ErrorCode::cancelled, "cancelled");
    return {};
  }

  Status step() override {
    ++steps;
    clock_.seconds +=
        (costs_.slope * length_ + costs_.intercept) * 1e-3 * disturbance(static_cast<size_t>(steps));
    if (on_step) return on_step(steps);
    return {};
  }

  void finish() override { ++finished; }

  int64_t steps = 0;
  int64_t finished = 0;
  std::function<Status(int64_t)> on_step;
  std::function<double(size_t)> disturbance = [](size_t) { return 1.0; };  // a factor, by call

 private:
  FakeClock& clock_;
  FakeCosts costs_;
  SubjectInfo info_;
  double length_ = 0;
};

// vLLM's numbers on an H100 (ms), and a prefill for each.
constexpr FakeCosts kBf16 = {2.0e-7, 0.031, 11.0, 4.37e-5, 6.44};
constexpr FakeCosts kFp8 = {1.5e-7, 0.030, 12.0, 2.37e-5, 6.58};

struct FakeBench {
  FakeClock clock;
  std::vector<std::unique_ptr<Subject>> subjects;
  std::vector<FakeSubject*> fakes;
  LatencyOptions options;

  FakeBench() {
    add("bf16", false, kBf16);
    add("fp8", true, kFp8);
    options.prompt_lengths = {256, 1024, 8192, 131072};
    options.output_tokens = 5;
    options.rounds = 3;
    options.vocab = 1000;
    options.now = [this] { return clock.seconds; };
  }
  FakeBench(const FakeBench&) = delete;
  FakeBench& operator=(const FakeBench&) = delete;

  void add(const std::string& name, bool eight_bit, FakeCosts costs) {
    auto subject = std::make_unique<FakeSubject>(clock, name, eight_bit, costs);
    fakes.push_back(subject.get());
    subjects.push_back(std::move(subject));
  }

  Expected<LatencyReport> measure() { return measure_latency(subjects, options); }
};

}  // namespace kv8::bench
