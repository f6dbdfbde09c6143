// A tokenizer.json whose steps let a text grow without end, or whose patterns search for ever, is an error
// that names the file and the step; and a search that can't be finished is never taken for one that found
// nothing.
#include "text/text_budget.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sanitizers.h"
#include "text/regex.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace kv8::text {
namespace {

using ::testing::HasSubstr;

Json tokenizer_json() {
  return {{"added_tokens", Json::array({{{"id", 3}, {"content", "<s>"}, {"special", true}}})},
          {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {" ", 2}}}, {"merges", Json::array()}}}};
}

std::string encode_error(const Json& json, std::string_view text) {
  const auto tokenizer = Tokenizer::from_json_text(json.dump(), "some/tokenizer.json");
  if (!tokenizer) return "doesn't load: " + tokenizer.error().message;
  const auto ids = tokenizer->encode(text);
  return ids ? "no error" : ids.error().message;
}

Json replace(std::string pattern, std::string content) {
  return {
      {"type", "Replace"}, {"pattern", {{"String", std::move(pattern)}}}, {"content", std::move(content)}};
}

TEST(TextBudget, StepsThatLetATextGrowAreNamed) {
  Json doubling = Json::array();
  for (int i = 0; i < 40; ++i) doubling.push_back(replace("a", "aa"));
  Json json = tokenizer_json();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", doubling}};
  EXPECT_THAT(encode_error(json, "a"), HasSubstr("some/tokenizer.json: normalizer.normalizers[20] (Replace): "
                                                 "makes more than 1048640 bytes of a text of 1"));

  for (Json& step : doubling) step["pattern"] = {{"Regex", "a"}};
  json["normalizer"]["normalizers"] = doubling;
  EXPECT_THAT(encode_error(json, "a"), HasSubstr("normalizer.normalizers[20] (Replace)"));

  // One step is enough.
  json["normalizer"] = replace("a", std::string(2'000'000, 'a'));
  EXPECT_THAT(encode_error(json, std::string(1000, 'a')), HasSubstr("normalizer (Replace)"));
  json["normalizer"] = {{"type", "Prepend"}, {"prepend", std::string(2'000'000, 'a')}};
  EXPECT_THAT(encode_error(json, "a"), HasSubstr("normalizer (Prepend)"));

  json = tokenizer_json();
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", std::string(3000, ' ')}};
  EXPECT_THAT(encode_error(json, std::string(10000, ' ')), HasSubstr("pre_tokenizer (Metaspace)"));
  Json steps = Json::array();
  for (int i = 0; i < 40; ++i)
    steps.push_back({{"type", "Metaspace"}, {"replacement", "  "}, {"prepend_scheme", "always"}});
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  EXPECT_THAT(encode_error(json, " "), HasSubstr("pre_tokenizer.pretokenizers["));
}

TEST(TextBudget, ANormalizedTokenThatGrowsIsRefusedAtLoad) {
  Json json = tokenizer_json();
  json["added_tokens"].push_back({{"id", 4}, {"content", "a"}, {"special", false}, {"normalized", true}});
  Json doubling = Json::array();
  for (int i = 0; i < 40; ++i) doubling.push_back(replace("a", "aa"));
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", doubling}};
  EXPECT_THAT(encode_error(json, "a"),
              HasSubstr("doesn't load: some/tokenizer.json: normalizer.normalizers[20]"));
}

TEST(TextBudget, DecodersThatLetATextGrowAreNamed) {
  Json doubling = Json::array();
  for (int i = 0; i < 40; ++i) doubling.push_back(replace("a", "aa"));
  Json json = tokenizer_json();
  json["decoder"] = {{"type", "Sequence"}, {"decoders", doubling}};
  auto tokenizer = Tokenizer::from_json_text(json.dump(), "some/tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto text = tokenizer->decode(std::vector<int32_t>{0});
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("some/tokenizer.json: decoder.decoders[20] (Replace)"));
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push(0).error().message, text.error().message);

  // Every token a little, all of them together too much.
  json["decoder"] = replace("a", std::string(1000, 'a'));
  tokenizer = Tokenizer::from_json_text(json.dump(), "some/tokenizer.json");
  EXPECT_TRUE(tokenizer->decode(std::vector<int32_t>(1000, 0)));
  EXPECT_FALSE(tokenizer->decode(std::vector<int32_t>(10000, 0)));
}

TEST(TextBudget, TokensAroundATextAreFew) {
  Json json = tokenizer_json();
  const Json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  Json single = Json::array();
  for (int i = 0; i < 1000; ++i) single.push_back(special);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", single},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", std::vector<int>(1000, 3)}}}}}};
  EXPECT_THAT(encode_error(json, "a"),
              HasSubstr("doesn't load: some/tokenizer.json: post_processor.single: more"));
  Json processors = Json::array();
  for (int i = 0; i < 2000; ++i)
    processors.push_back({{"type", "BertProcessing"}, {"cls", {"<s>", 3}}, {"sep", {"<s>", 3}}});
  json["post_processor"] = {{"type", "Sequence"}, {"processors", processors}};
  EXPECT_THAT(encode_error(json, "a"), HasSubstr("post_processor.processors[512]"));
}

Json split(std::string pattern) {
  Json json = tokenizer_json();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", std::move(pattern)}}}, {"behavior", "Isolated"}};
  return json;
}

TEST(TextBudget, PatternsThatSearchForEverAreNamed) {
  const std::string lines = [] {
    std::string text;
    while (text.size() < 210'000) text += "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b\n";
    return text;
  }();
  for (const char* pattern : {"(a+)+$", "(a|aa)+c", "(?:a*)*c", "(?:[^c]*+c|a)*x", "a(?=(?s).*c)"}) {
    EXPECT_THAT(encode_error(split(pattern), lines),
                HasSubstr("some/tokenizer.json: pre_tokenizer.pattern.Regex: the pattern"))
        << pattern;
  }
}

TEST(TextBudget, WhatFitsIsFoundWhereverItIs) {
  std::mt19937 random(9);
  // Near and far, across the border of the window that the quick code sees, behind what it gives up on.
  for (const size_t before : {0, 1, 100, 126, 127, 128, 129, 200, 5000}) {
    for (const size_t length : {1, 2, 60, 127, 128, 129, 1000, 30000}) {
      const std::string text =
          std::string(before, 'x') + std::string(length, 'y') + "z" + std::string(50, 'x');
      for (const char* pattern : {"y+", "y+z", "(?:y)+(?=z)", "(?<=x|^)y+", "y*?z", "(?:yy?)+z"}) {
        const auto regex = Regex::compile(pattern, "test");
        ASSERT_TRUE(regex);
        TextBudget budget(text.size());
        const auto found = regex->find(text, 0, budget);
        ASSERT_TRUE(found) << found.error().message;
        ASSERT_TRUE(*found) << pattern << before << ' ' << length;
        EXPECT_EQ((*found)->begin, before) << pattern << ' ' << length;
        EXPECT_GE((*found)->end, before + length) << pattern;
        EXPECT_LE((*found)->end, before + length + 1) << pattern;
      }
    }
  }
  // Characters of several bytes at the window's border.
  for (size_t before = 100; before < 140; ++before) {
    const std::string text = std::string(before, 'x') + "\xE4\xBD\xA0\xE5\xA5\xBD\xF0\x9F\x99\x82";
    const auto regex = Regex::compile(R"(\p{L}+$|\p{So})", "test");
    TextBudget budget(text.size());
    size_t matches = 0;
    EXPECT_TRUE(regex->for_each(text, budget, [&](size_t begin, size_t end) -> Status {
      EXPECT_EQ(begin, before + 6);
      EXPECT_EQ(end, before + 10);
      ++matches;
      return {};
    }));
    EXPECT_EQ(matches, 1U);
  }
}

TEST(TextBudget, MemoryForBacktrackingThatRunsOutIsAnError) {
  // Each letter is remembered: neither the JIT's stack nor the interpreter's heap holds as many.
  const std::string text(kv8::test::kSanitized ? 3'000'000 : 6'000'000, 'a');
  const auto error = encode_error(split("(?:(a)|(b))+c"), text);
  EXPECT_THAT(error, HasSubstr("some/tokenizer.json: pre_tokenizer.pattern.Regex: the pattern"));
}

}  // namespace
}  // namespace kv8::text
