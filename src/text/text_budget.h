// What the work on one text may take. A tokenizer.json is a stranger's program: its steps may let a text grow
// and its patterns may search for ever, so both are bounded in proportion to the text that came in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "core/error.h"

namespace kv8::text {

class TextBudget {
 public:
  // input_bytes: of the text to work on.
  explicit TextBudget(size_t input_bytes = 0) { add_input(input_bytes); }
  TextBudget(const TextBudget&) = delete;
  TextBudget& operator=(const TextBudget&) = delete;

  void add_input(size_t bytes) {  // of a text that comes in pieces
    input_ = std::min(input_ + bytes, kMaxInput);
  }
  // What is at work from here on, for messages: "tokenizer.json: normalizer.normalizers[3]". Must outlive it.
  void enter(std::string_view step) { step_ = step; }

  // Whether a text on its way through the steps may have this many bytes.
  bool fits(size_t bytes) const { return bytes <= kFreeBytes + kMaxGrowth * input_; }
  Status check_size(size_t bytes) const {
    if (fits(bytes)) return {};
    return make_error(ErrorCode::corrupt_data, "{}: makes more than {} bytes of a text of {}", step_,
                      kFreeBytes + kMaxGrowth * input_, input_);
  }

  // A search's positions and alternatives. False when there were too many of them.
  bool spend(size_t steps) {
    steps_ += steps;
    return steps_ <= kFreeSteps + kStepsPerByte * input_;
  }
  void count(size_t steps) { steps_ += steps; }  // work that is linear by itself: for whoever measures
  size_t steps() const { return steps_; }
  std::string_view step() const { return step_; }

 private:
  // Unicode's longest decomposition makes 11 bytes of one, the byte alphabet 2, U+2581 for a space 3.
  static constexpr size_t kMaxGrowth = 64;
  static constexpr size_t kFreeBytes = size_t{1} << 20;
  // Published patterns need fewer than 10 for a byte of the worst text.
  static constexpr size_t kStepsPerByte = 256;
  static constexpr size_t kFreeSteps = 10'000'000;
  static constexpr size_t kMaxInput = std::numeric_limits<size_t>::max() / 1024;

  size_t input_ = 0;
  size_t steps_ = 0;
  std::string_view step_ = "the text";
};

}  // namespace kv8::text
