// What a latency measurement runs: one way to run a model, for one sequence at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/error.h"

namespace kv8::bench {

struct SubjectInfo {
  std::string name;          // "fp8"
  std::string description;   // "FP8 cache, window layers in BF16"
  int64_t token_bytes = 0;   // of one more token in the cache, at long context
  int64_t window_bytes = 0;  // what window layers hold of a sequence, at most
  bool eight_bit =
      false;  // its cache is (at least partly) FP8, so that it is compared with those that aren't
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual const SubjectInfo& info() const = 0;

  // Called as a prompt is worked on, with the tokens done; false cancels.
  using Progress = std::function<bool(int64_t done)>;

  // Starts over with this prompt, and returns when the first token of the answer is known to the host. Errors
  // as the engine's; cancelled if `progress` said so.
  virtual Status prefill(std::span<const int32_t> prompt, const Progress& progress) = 0;
  // One more token, known to the host when it returns.
  virtual Status step() = 0;
  // Gives back what the sequence held.
  virtual void finish() = 0;
};

}  // namespace kv8::bench
