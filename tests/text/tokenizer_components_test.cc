// Every component of a tokenizer.json, on small tokenizers that the reference made
// (scripts/make_tokenizer_fixtures.py).
#include <gtest/gtest.h>

#include "fixtures.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "tokenizer_test_util.h"

namespace kv8::text {
namespace {

const Json& cases() {
  static const Json loaded = [] {
    const auto path = std::filesystem::path(KV8_SOURCE_DIR) / "tests/fixtures/text/tokenizers.json.gz";
    auto json = parse_json(test::read_gzip(path), path.string());
    if (!json) throw std::runtime_error(json.error().message);
    return *std::move(json);
  }();
  return loaded;
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const auto& item : cases().items()) result.push_back(item.key());
  return result;
}

class TokenizerComponents : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Json& item = cases().at(GetParam());
    auto tokenizer = Tokenizer::from_json_text(item.at("tokenizer").dump(), GetParam());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *std::move(tokenizer);
  }

  std::string stream(const std::vector<int32_t>& ids, bool skip_special) const {
    StreamDecoder decoder(*tokenizer_, skip_special);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = decoder.push(id).value();
      EXPECT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    return text + decoder.flush().value();
  }

  std::optional<Tokenizer> tokenizer_;
};

TEST_P(TokenizerComponents, EncodesAsTheReference) {
  const Json& texts = cases().at(GetParam()).at("encode");
  ASSERT_GE(texts.size(), 50U);
  for (const Json& item : texts) {
    const auto text = item.at("text").get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, {.add_special_tokens = false}),
              item.at("ids").get<std::vector<int32_t>>())
        << '"' << text << '"';
    EXPECT_EQ(tokenizer_->encode(text), item.at("with_special").get<std::vector<int32_t>>())
        << '"' << text << '"';
  }
}

TEST_P(TokenizerComponents, DecodesAsTheReference) {
  for (const Json& item : cases().at(GetParam()).at("encode")) {
    const auto ids = item.at("with_special").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->decode(ids, false), item.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer_->decode(ids, true), item.at("decoded_skipping").get<std::string>());
    EXPECT_EQ(stream(ids, false), item.at("decoded").get<std::string>());
    EXPECT_EQ(stream(ids, true), item.at("decoded_skipping").get<std::string>());
  }
  for (const Json& item : cases().at(GetParam()).at("decode")) {
    const auto ids = item.at("ids").get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->decode(ids), item.at("decoded").get<std::string>());
    EXPECT_EQ(stream(ids, false), item.at("decoded").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerComponents, ::testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kv8::text
