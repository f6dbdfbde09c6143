// The range that a number from a file must lie in. The same type serves fields of configs and elements of
// small tensors (scales, norms, biases), so that a damaged number is caught wherever it comes in.
#pragma once

namespace kv8 {

struct NumberRange {
  double low = 0.0;
  double high = 0.0;  // both inclusive

  // NaN lies in no range.
  constexpr bool contains(double number) const { return number >= low && number <= high; }
};

}  // namespace kv8
