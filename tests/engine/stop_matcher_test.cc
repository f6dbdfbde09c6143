#include "engine/stop_matcher.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace kv8::engine {
namespace {

TEST(StopMatcher, PassesTextOnAtOnceWithoutStops) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("abc"), "abc");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, HoldsBackTheBeginningOfAStop) {
  StopMatcher matcher({"</end>"});
  EXPECT_EQ(matcher.push("hello <"), "hello ");
  EXPECT_EQ(matcher.push("/e"), "");
  EXPECT_EQ(matcher.push("x"), "</ex");
  EXPECT_EQ(matcher.push("</end>never shown"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, AStopThatNeverCameIsShownAtTheEnd) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.push("THE EN"), "THE ");
  EXPECT_EQ(matcher.flush(), "EN");
}

// However the text is cut, what is shown is the text before the earliest stop string.
TEST(StopMatcher, AnyCutGivesTheSameText) {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += static_cast<char>('a' + random() % 2);
    std::vector<std::string> stops;
    for (int i = 0; i < 3; ++i) {
      std::string stop;
      for (size_t k = 0; k < 2 + random() % 6; ++k) stop += static_cast<char>('a' + random() % 2);
      stops.push_back(stop);
    }
    // The stop that ends first wins in a stream; at equal ends the longest.
    size_t cut = text.size();
    for (size_t end = 1; end <= text.size() && cut == text.size(); ++end) {
      for (const auto& stop : stops) {
        if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0)
          cut = std::min(cut, end - stop.size());
      }
      if (cut != text.size()) break;
    }
    StopMatcher matcher(stops);
    std::string shown;
    for (const char c : text) shown += matcher.push(std::string(1, c));
    shown += matcher.flush();
    EXPECT_EQ(shown, text.substr(0, cut));
  }
}

}  // namespace
}  // namespace kv8::engine
