// The real tokenizers: every text of golden.json.gz, ids and decoded text, exactly as the reference has them.
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "fixtures.h"
#include "sanitizers.h"
#include "text/normalizer.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "tokenizer_test_util.h"

namespace kv8::text {
namespace {

class TokenizerGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    folder_ = kv8::test::tokenizer_fixtures();
    if (folder_.empty()) {
      GTEST_SKIP()
          << "THE REAL TOKENIZERS ARE NOT TESTED: no tokenizers/golden.json.gz under KV8_FIXTURES or "
             "../shared/fixtures";
    }
  }

  // Loaded once for all tests.
  const Tokenizer& load() const {
    static std::map<std::string, Tokenizer> loaded;
    const auto found = loaded.find(GetParam());
    if (found != loaded.end()) return found->second;
    const std::string json = test::read_gzip(folder_ / GetParam() / "tokenizer.json.gz");
    const auto config =
        parse_json(test::read_gzip(folder_ / GetParam() / "tokenizer_config.json.gz"), "config");
    auto tokenizer = Tokenizer::from_json_text(json, GetParam(), &*config);
    if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
    return loaded.emplace(GetParam(), *std::move(tokenizer)).first->second;
  }

  std::filesystem::path folder_;
};

TEST_P(TokenizerGolden, IdsAndTextAreTheReferences) {
  const Tokenizer& tokenizer = load();
  const auto golden = parse_json(test::read_gzip(folder_ / "golden.json.gz"), "golden.json.gz");
  ASSERT_TRUE(golden) << golden.error().message;
  const Json& cases = golden->at(GetParam()).at("encode");
  ASSERT_GE(cases.size(), 100U);
  for (const Json& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto ids = item.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = false}), ids) << text;
    EXPECT_EQ(tokenizer.decode(ids), item.at("decoded").get<std::string>());
    StreamDecoder stream(tokenizer, false);
    std::string streamed;
    for (const int32_t id : ids) {
      const std::string piece = stream.push(id).value();
      EXPECT_TRUE(is_valid_utf8(piece));
      streamed += piece;
    }
    streamed += stream.flush().value();
    EXPECT_EQ(streamed, item.at("decoded").get<std::string>());
  }
}

TEST_P(TokenizerGolden, KnowsItsSpecialTokens) {
  const Tokenizer& tokenizer = load();
  const bool adds_bos = GetParam() != "qwen3" && GetParam() != "gptoss";
  const auto ids = tokenizer.encode("Hi").value();
  ASSERT_FALSE(ids.empty());
  if (adds_bos) {
    ASSERT_TRUE(tokenizer.bos_id());
    EXPECT_EQ(ids.front(), *tokenizer.bos_id());
    EXPECT_TRUE(tokenizer.is_special(ids.front()));
    EXPECT_EQ(tokenizer.decode(ids, true), "Hi");
  } else {
    EXPECT_EQ(tokenizer.decode(ids), "Hi");
  }
  ASSERT_TRUE(tokenizer.eos_id());
  const std::string eos(tokenizer.token_text(*tokenizer.eos_id()));
  EXPECT_EQ(tokenizer.token_to_id(eos), tokenizer.eos_id());
  EXPECT_EQ(tokenizer.encode(eos, {.add_special_tokens = false}), std::vector{*tokenizer.eos_id()});
  EXPECT_GT(tokenizer.encode(eos, {.add_special_tokens = false, .parse_special_tokens = false})->size(), 1U);
}

// Whatever the text, its ids decode to it (normalized, where the tokenizer normalizes).
TEST_P(TokenizerGolden, DecodingGivesTheTextBack) {
  const Tokenizer& tokenizer = load();
  std::mt19937 random(20);
  for (int i = 0; i < 200; ++i) {
    std::string text = test::random_text(random, 1 + random() % 60);
    const auto ids =
        tokenizer.encode(text, {.add_special_tokens = false, .parse_special_tokens = false}).value();
    if (GetParam() == "qwen3") normalize_unicode(text, NormalForm::nfc);
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

// The work grows with the text, whatever runs of one kind it is made of: four times the text, no more than
// four times the steps of patterns and merges (and a little for what a longer number of merges adds).
TEST_P(TokenizerGolden, LongTextsTakeLinearWork) {
  const Tokenizer& tokenizer = load();
  constexpr size_t kBytes = size_t{1} << (kv8::test::kSanitized ? 16 : 19);
  std::mt19937 random(21);
  std::string letters;
  while (letters.size() < kBytes) letters += static_cast<char>('a' + random() % 26);
  std::string marks = "e";
  while (marks.size() < kBytes) append_utf8(marks, random() % 2 == 0 ? 0x301 : 0x323);
  const std::function<std::string(size_t)> makers[] = {
      [](size_t bytes) { return std::string(bytes, 'a'); },
      [](size_t bytes) { return std::string(bytes, ' '); },
      [](size_t bytes) { return std::string(bytes, '\n'); },
      [](size_t bytes) { return std::string(bytes, 'A'); },
      [](size_t bytes) { return std::string(bytes - 1, ' ') + "a"; },
      [](size_t bytes) { return std::string(bytes, '!'); },
      [](size_t bytes) { return std::string(bytes, '7'); },
      [&](size_t bytes) { return letters.substr(0, bytes); },
      [&](size_t bytes) { return marks.substr(0, bytes | 1); },
  };
  for (const auto& make : makers) {
    const auto steps = [&](size_t bytes) {
      TextBudget budget;
      EXPECT_TRUE(tokenizer.encode(make(bytes), {.add_special_tokens = false}, &budget));
      return budget.steps();
    };
    const size_t few = steps(kBytes / 4);
    const size_t many = steps(kBytes);
    EXPECT_LE(many, few * 9 / 2 + 1000) << make(10);
    EXPECT_LE(many, 20 * kBytes) << make(10);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden,
                         ::testing::Values("llama3_1", "qwen3", "gemma3", "gptoss", "deepseek_v3"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kv8::text
