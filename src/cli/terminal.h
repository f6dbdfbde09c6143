// The user's terminal: progress on stderr, Ctrl-C, numbers and tables that people read.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/readable.h"

namespace kv8::cli {

// Set by the first Ctrl-C after the call; a second one ends the program at once.
const std::atomic<bool>& interrupt_flag();
void stop_as_interrupted();  // sets it without a Ctrl-C

// A line on stderr that is drawn again as work goes on, and wiped at the end. Silent unless stderr is a
// terminal.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, int64_t total);
  void clear();

 private:
  std::string label_;
  bool shown_ = false;
  int64_t last_permille_ = -1;
};

// Lines "  name   value", the values in one column.
void print_fields(std::string_view title, const std::vector<std::pair<std::string, std::string>>& fields);

int64_t peak_memory_bytes();

}  // namespace kv8::cli
