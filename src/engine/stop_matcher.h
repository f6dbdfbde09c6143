// Stop strings in a stream of text: passes on what is certain to lie before the first of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kv8::engine {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored

  // Returns the text that may be shown now. Text that could be the beginning of a stop string is held back.
  std::string push(std::string_view text);
  // At the end: the text held back. Empty once stopped.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace kv8::engine
