#include "core/json.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kv8 {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// A parsed text and the object that looks at it.
class Config {
 public:
  explicit Config(std::string_view text) : json_(parse_json(text, "config.json").value()) {}
  JsonObject object() const { return JsonObject::from(json_, "config.json").value(); }

 private:
  Json json_;
};

template <class T>
void expect_error(const Expected<T>& result, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, code) << result.error().message;
  EXPECT_EQ(result.error().message, message);
}

TEST(ParseJson, ReadsValues) {
  EXPECT_EQ(parse_json(R"({"a": [1, "x", null]})", "f").value()["a"][1], "x");
  EXPECT_EQ(parse_json("3", "f").value(), 3);
}

TEST(ParseJson, OrderedKeepsTheFilesOrder) {
  const auto json = parse_ordered_json(R"({"z": 1, "a": 2, "m": 3})", "f").value();
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key;
  EXPECT_EQ(keys, "zam");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "{\"a\":1,}", "[1 2]", "nul", "{'a': 1}", "\"abc", "{} x", "NaN",
                           "[Infinity]", "\"\\x\"", "01", "\xEF\xBB"}) {
    const auto json = parse_json(text, "config.json");
    ASSERT_FALSE(json.has_value()) << text;
    EXPECT_EQ(json.error().code, ErrorCode::corrupt_data) << text;
    EXPECT_THAT(json.error().message, StartsWith("config.json: not valid JSON: ")) << text;
  }
}

TEST(ParseJson, RefusesInvalidUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\xc0\xaf\"", R"("\ud800")"}) {
    EXPECT_EQ(parse_json(text, "f").error().code, ErrorCode::corrupt_data) << text;
  }
}

TEST(ParseJson, RefusesNumbersBeyondDouble) {
  EXPECT_EQ(parse_json("1e400", "f").error().code, ErrorCode::corrupt_data);
  EXPECT_EQ(parse_json("[-1e400]", "f").error().code, ErrorCode::corrupt_data);
  EXPECT_TRUE(parse_json("1e-400", "f").has_value());
}

TEST(ParseJson, LastOfDuplicateKeysCounts) {
  EXPECT_EQ(parse_json(R"({"a": 1, "a": 2})", "f").value()["a"], 2);
}

TEST(ParseJson, DepthHasABound) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "f").has_value());
  const auto json = parse_json(nested(kMaxJsonDepth + 1), "bomb.json");
  ASSERT_FALSE(json.has_value());
  EXPECT_THAT(json.error().message, HasSubstr("bomb.json: JSON nested deeper than 256 levels at byte 256"));
  EXPECT_FALSE(parse_json(std::string(5'000'000, '['), "f").has_value());
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_FALSE(parse_json(objects, "f").has_value());
}

TEST(ParseJson, BracketsInStringsAreNoDepth) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json('"' + brackets + '"', "f").value(), brackets);
  EXPECT_EQ(parse_json(R"("\"[[")" + std::string("\""), "f").error().code, ErrorCode::corrupt_data);
  EXPECT_TRUE(parse_json(R"(["\"", "\\", "]"])", "f").has_value());
}

TEST(JsonObject, FromWantsAnObject) {
  const Json list = Json::parse("[1]");
  expect_error(JsonObject::from(list, "config.json"), ErrorCode::corrupt_data,
               "config.json: top level: expected an object, found array");
  expect_error(JsonObject::from(list, "config.json", "a.b"), ErrorCode::corrupt_data,
               "config.json: a.b: expected an object, found array");
}

TEST(JsonObject, AbsentAndNullAreTheSame) {
  const Config config(R"({"null": null, "zero": 0})");
  const JsonObject object = config.object();
  EXPECT_FALSE(object.has("null"));
  EXPECT_FALSE(object.has("absent"));
  EXPECT_TRUE(object.has("zero"));
  EXPECT_EQ(object.find("null"), nullptr);
  for (const char* key : {"null", "absent"}) {
    const std::string missing = std::string("config.json: ") + key + ": missing";
    expect_error(object.integer(key, kMin, kMax), ErrorCode::not_found, missing);
    expect_error(object.number(key), ErrorCode::not_found, missing);
    expect_error(object.string(key), ErrorCode::not_found, missing);
    expect_error(object.object(key), ErrorCode::not_found, missing);
    EXPECT_EQ(object.integer_or(key, 7, 0, 1).value(), 7);
    EXPECT_EQ(object.number_or(key, 0.5).value(), 0.5);
    EXPECT_EQ(object.boolean_or(key, true).value(), true);
    EXPECT_EQ(object.string_or(key, "x").value(), "x");
    EXPECT_THAT(object.strings_or_empty(key).value(), IsEmpty());
    EXPECT_THAT(object.integers_or_empty(key, 0, 1).value(), IsEmpty());
  }
}

TEST(JsonObject, ReadsEachType) {
  const Config config(R"({"i": -3, "d": 0.25, "s": "text", "b": false, "o": {"p": {"i": 5}},
                          "ss": ["x", "y"], "is": [3, 4]})");
  const JsonObject object = config.object();
  EXPECT_EQ(object.integer("i", -3, -3).value(), -3);
  EXPECT_EQ(object.integer_or("i", 0, -10, 10).value(), -3);
  EXPECT_EQ(object.number("d").value(), 0.25);
  EXPECT_EQ(object.number("i").value(), -3.0);
  EXPECT_EQ(object.number_or("d", 1).value(), 0.25);
  EXPECT_EQ(object.string("s").value(), "text");
  EXPECT_EQ(object.string_or("s", "").value(), "text");
  EXPECT_EQ(object.boolean_or("b", true).value(), false);
  EXPECT_THAT(object.strings_or_empty("ss").value(), ElementsAre("x", "y"));
  EXPECT_THAT(object.integers_or_empty("is", 3, 4).value(), ElementsAre(3, 4));
  EXPECT_THAT(object.integers_or_empty("i", -3, 4).value(), ElementsAre(-3));
  EXPECT_EQ(object.object("o").value().object("p").value().integer("i", 0, 9).value(), 5);
}

TEST(JsonObject, ErrorsNameTheWholePath) {
  const Config config(R"({"rope": {"yarn": {"factor": "four"}}})");
  const JsonObject yarn = config.object().object("rope").value().object("yarn").value();
  expect_error(yarn.number("factor"), ErrorCode::corrupt_data,
               "config.json: rope.yarn.factor: expected a number, found \"four\"");
  expect_error(yarn.number("beta"), ErrorCode::not_found, "config.json: rope.yarn.beta: missing");
}

TEST(JsonObject, RefusesOtherTypes) {
  const Config config(
      R"({"i": 3, "d": 0.5, "s": "text", "b": true, "o": {}, "mixed": ["x", 1], "n": [1, "x"]})");
  const JsonObject object = config.object();
  const auto corrupt = ErrorCode::corrupt_data;
  expect_error(object.integer("s", 0, 9), corrupt, "config.json: s: expected an integer, found \"text\"");
  expect_error(object.integer("d", 0, 9), corrupt, "config.json: d: expected an integer, found 0.5");
  expect_error(object.integer("b", 0, 9), corrupt, "config.json: b: expected an integer, found true");
  expect_error(object.integer_or("o", 0, 0, 9), corrupt, "config.json: o: expected an integer, found {}");
  expect_error(object.number("b"), corrupt, "config.json: b: expected a number, found true");
  expect_error(object.number_or("s", 0), corrupt, "config.json: s: expected a number, found \"text\"");
  expect_error(object.string("i"), corrupt, "config.json: i: expected a string, found 3");
  expect_error(object.string_or("o", ""), corrupt, "config.json: o: expected a string, found {}");
  expect_error(object.boolean_or("i", true), corrupt, "config.json: i: expected true or false, found 3");
  expect_error(object.object("i"), corrupt, "config.json: i: expected an object, found number");
  expect_error(object.strings_or_empty("s"), corrupt,
               "config.json: s: expected a list of strings, found \"text\"");
  expect_error(object.strings_or_empty("mixed"), corrupt,
               "config.json: mixed: expected a list of strings, found [\"x\",1]");
  expect_error(object.integers_or_empty("n", 0, 9), corrupt,
               "config.json: n: expected an integer, found \"x\"");
}

TEST(JsonObject, IntegersKeepTheirRange) {
  const Config config(R"({"zero": 0, "big": 9223372036854775807, "huge": 9223372036854775808,
                          "most": 18446744073709551615, "low": -9223372036854775808, "list": [1, 99]})");
  const JsonObject object = config.object();
  EXPECT_EQ(object.integer("big", 0, kMax).value(), kMax);
  EXPECT_EQ(object.integer("low", kMin, 0).value(), kMin);
  EXPECT_EQ(object.integer("zero", 0, 0).value(), 0);
  for (const char* key : {"huge", "most"}) EXPECT_FALSE(object.integer(key, kMin, kMax).has_value()) << key;
  expect_error(object.integer("zero", 1, 8), ErrorCode::corrupt_data,
               "config.json: zero: 0 is outside of 1 to 8");
  EXPECT_FALSE(object.integer("zero", -8, -1).has_value());
  EXPECT_FALSE(object.integer("big", 0, kMax - 1).has_value());
  EXPECT_FALSE(object.integer("low", kMin + 1, kMax).has_value());
  EXPECT_FALSE(object.integers_or_empty("list", 0, 98).has_value());
}

TEST(JsonObject, WholeNumbersWrittenAsFractionsAreIntegers) {
  const Config config(R"({"a": 1e6, "b": 64.0, "c": 1e300, "d": -0.0, "e": 1e16, "f": 64.5})");
  const JsonObject object = config.object();
  EXPECT_EQ(object.integer("a", 0, kMax).value(), 1'000'000);
  EXPECT_EQ(object.integer("b", 64, 64).value(), 64);
  EXPECT_EQ(object.integer("d", 0, 0).value(), 0);
  // Beyond 2^53 a double no longer says which integer was meant.
  EXPECT_FALSE(object.integer("c", kMin, kMax).has_value());
  EXPECT_FALSE(object.integer("e", kMin, kMax).has_value());
  EXPECT_FALSE(object.integer("f", 0, 100).has_value());
  EXPECT_FALSE(object.integer("b", 0, 63).has_value());
}

TEST(JsonObject, NumbersAreFinite) {
  Json json;
  json["nan"] = std::nan("");
  json["inf"] = std::numeric_limits<double>::infinity();
  const JsonObject object = JsonObject::from(json, "f").value();
  EXPECT_EQ(object.number("nan").error().code, ErrorCode::corrupt_data);
  EXPECT_EQ(object.number_or("inf", 1.0).error().code, ErrorCode::corrupt_data);
  EXPECT_EQ(object.integer("nan", kMin, kMax).error().code, ErrorCode::corrupt_data);
  EXPECT_EQ(object.integer("inf", kMin, kMax).error().code, ErrorCode::corrupt_data);
}

TEST(JsonObject, MessagesQuoteNoMoreThanALine) {
  const Config config("{\"a\": \"" + std::string(10'000, 'x') + "\"}");
  const auto result = config.object().number("a");
  ASSERT_FALSE(result.has_value());
  EXPECT_LT(result.error().message.size(), 120U);
  EXPECT_THAT(result.error().message, HasSubstr("..."));
}

}  // namespace
}  // namespace kv8
