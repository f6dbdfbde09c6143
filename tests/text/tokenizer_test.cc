// What a Tokenizer promises beyond the reference's results: errors, any bytes, streams, GGUF vocabularies.
#include "text/tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/stream_decoder.h"
#include "tokenizer_test_util.h"

namespace kv8::text {
namespace {

using ::testing::HasSubstr;

// A byte-level tokenizer: 256 bytes, "<|end|>", and random merges.
Json byte_level_json(std::mt19937& random, int merges) {
  Json vocab = Json::object();
  std::vector<std::string> tokens;
  tokens.reserve(256);
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  Json merge_list = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[tokens[i]] = i;
  while (merges > 0) {
    // Mostly letters, so that the merges are met; tokens of earlier merges too.
    const auto pick = [&] {
      return random() % 4 != 0 ? tokens['a' + random() % 6] : tokens[random() % tokens.size()];
    };
    const std::string left = pick();
    const std::string right = pick();
    if (left.size() + right.size() > 12 || vocab.contains(left + right)) continue;
    vocab[left + right] = tokens.size();
    tokens.push_back(left + right);
    merge_list.push_back(Json::array({left, right}));
    --merges;
  }
  Json json;
  json["added_tokens"] = Json::array({{{"id", tokens.size()}, {"content", "<|end|>"}, {"special", true}}});
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  json["decoder"] = {{"type", "ByteLevel"}};
  json["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}};
  return json;
}

Tokenizer byte_level_tokenizer(int seed = 1) {
  std::mt19937 random(seed);
  auto tokenizer = Tokenizer::from_json_text(byte_level_json(random, 300).dump(), "test.json");
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return *std::move(tokenizer);
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer, false);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.push(id).value();
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + decoder.flush().value();
}

TEST(Tokenizer, DecodingGivesAnyTextBack) {
  const Tokenizer tokenizer = byte_level_tokenizer();
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    const std::string text = test::random_text(random, random() % 80);
    const auto ids = tokenizer.encode(text).value();
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_EQ(stream(tokenizer, ids), text);
  }
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const Tokenizer tokenizer = byte_level_tokenizer();
  // A byte that is none, a cut-off character, an overlong form, a surrogate, one above U+10FFFF.
  EXPECT_EQ(tokenizer.decode(tokenizer
                                 .encode("a\xFF"
                                         "b\xE4\xBD")
                                 .value()),
            "a\uFFFDb\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes).value()), replace_invalid_utf8(bytes));
  }
}

TEST(Tokenizer, StreamsAndDecodesAnyIdsAlike) {
  const Tokenizer tokenizer = byte_level_tokenizer();
  std::mt19937 random(4);
  for (int i = 0; i < 500; ++i) {
    std::vector<int32_t> ids(random() % 30);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 600) - 10;  // some are no tokens
    EXPECT_EQ(stream(tokenizer, ids), tokenizer.decode(ids));
  }
}

TEST(StreamDecoder, HoldsBackHalfACharacter) {
  const Tokenizer tokenizer = byte_level_tokenizer();
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x99), "");
  EXPECT_EQ(decoder.push(0x82), "🙂");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('x'), "\uFFFDx");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
}

// Both queues against the definition: the lowest rank first, the leftmost of equals.
TEST(Bpe, LongAndShortWordsMergeInTheSameOrder) {
  std::mt19937 random(5);
  const Json json = byte_level_json(random, 300);
  const auto tokenizer = Tokenizer::from_json_text(json.dump(), "test.json");
  ASSERT_TRUE(tokenizer);
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const Json& merge : json["model"]["merges"])
    ranks.emplace(std::pair(merge[0], merge[1]), ranks.size());
  for (const size_t length : {2U, 50U, 700U, 5000U}) {
    std::string word;
    std::vector<std::string> parts;
    for (size_t i = 0; i < length; ++i) word += static_cast<char>('a' + random() % 6);
    for (const char letter : word) parts.emplace_back(1, letter);
    while (true) {
      size_t best = SIZE_MAX;
      size_t at = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto rank = ranks.find({parts[i], parts[i + 1]});
        if (rank != ranks.end() && rank->second < best) {
          best = rank->second;
          at = i;
        }
      }
      if (best == SIZE_MAX) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(at) + 1);
    }
    std::vector<int32_t> expected;
    expected.reserve(parts.size());
    for (const std::string& part : parts) expected.push_back(json["model"]["vocab"].at(part));
    EXPECT_EQ(tokenizer->encode(word), expected) << length;
  }
}

TEST(Tokenizer, FindsSpecialTokensOnlyWhenAsked) {
  const Tokenizer tokenizer = byte_level_tokenizer();
  const int32_t end = *tokenizer.token_to_id("<|end|>");
  EXPECT_EQ(tokenizer.vocab_size(), end + 1);
  EXPECT_TRUE(tokenizer.is_special(end));
  EXPECT_EQ(tokenizer.token_text(end), "<|end|>");
  EXPECT_EQ(tokenizer.encode("<|end|>"), std::vector{end});
  const auto as_text = tokenizer.encode("<|end|>", {.parse_special_tokens = false}).value();
  EXPECT_GT(as_text.size(), 1U);
  EXPECT_EQ(tokenizer.decode(as_text, true), "<|end|>");
  EXPECT_EQ(tokenizer.decode(std::vector{end}, true), "");
}

TEST(Tokenizer, ConfigDecidesOnBeginAndEnd) {
  std::mt19937 random(6);
  const std::string json = byte_level_json(random, 10).dump();
  const Json config = {{"bos_token", {{"content", "<|end|>"}}},
                       {"eos_token", "<|end|>"},
                       {"add_bos_token", true},
                       {"add_eos_token", true}};
  const auto tokenizer = Tokenizer::from_json_text(json, "test.json", &config);
  ASSERT_TRUE(tokenizer);
  const int32_t end = *tokenizer->eos_id();
  EXPECT_EQ(tokenizer->encode("x"), (std::vector<int32_t>{end, 'x', end}));
  EXPECT_EQ(tokenizer->encode("x", {.add_special_tokens = false}), std::vector<int32_t>{'x'});
}

std::string error_of(const Json& json) {
  const auto tokenizer = Tokenizer::from_json_text(json.dump(), "broken.json");
  return tokenizer ? "no error" : tokenizer.error().message;
}

TEST(Tokenizer, ErrorsNameFileAndField) {
  std::mt19937 random(7);
  const Json good = byte_level_json(random, 5);
  Json json = good;
  json["normalizer"] = {{"type", "Precompiled"}};
  EXPECT_THAT(error_of(json),
              HasSubstr("broken.json: normalizer.type: normalizer \"Precompiled\" isn't supported"));
  json = good;
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(a"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: pre_tokenizer.pattern.Regex"));
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "[a&&b]"}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_of(json), HasSubstr("intersection"));
  json = good;
  json["decoder"] = {{"type", "CTC"}};
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: decoder.type"));
  json = good;
  json["post_processor"] = {{"type", "Nothing"}};
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: post_processor.type"));
  json = good;
  json["model"]["type"] = "Unigram";
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: model.type: model \"Unigram\" isn't supported"));
  json = good;
  json["model"]["merges"].push_back("q zz");
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: model.merges[5]: \"zz\" isn't in model.vocab"));
  json = good;
  json["model"]["merges"].push_back({"a", "b", "c"});
  EXPECT_THAT(error_of(json), HasSubstr("model.merges"));
  json = good;
  json["model"]["vocab"]["far"] = 2'000'000'000;
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: model.vocab: id 2000000000"));
  json = good;
  json["model"]["vocab"]["negative"] = -1;
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: model.vocab"));
  json = good;
  json["added_tokens"][0]["id"] = "x";
  EXPECT_THAT(error_of(json), HasSubstr("broken.json: added_tokens[0].id"));
  EXPECT_THAT(error_of(Json::array()), HasSubstr("broken.json"));
  const std::string text = good.dump();
  for (size_t length = 0; length < text.size(); length += 97) {
    EXPECT_FALSE(Tokenizer::from_json_text(text.substr(0, length), "cut.json"));
  }
  EXPECT_FALSE(Tokenizer::from_json_text(std::string(100'000, '['), "deep.json"));
  EXPECT_FALSE(Tokenizer::from_json("/nonexistent/tokenizer.json"));
}

GgufVocabulary sentence_piece() {
  GgufVocabulary vocabulary;
  vocabulary.source = "test.gguf";
  vocabulary.model = "llama";
  const auto add = [&](std::string token, float score, GgufTokenType type) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.scores.push_back(score);
    vocabulary.token_types.push_back(static_cast<int32_t>(type));
  };
  add("<unk>", 0, GgufTokenType::unknown);
  add("<s>", 0, GgufTokenType::control);
  add("</s>", 0, GgufTokenType::control);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), 0, GgufTokenType::byte);
  float score = -1;  // from 259 on
  for (const char* token : {"▁t", "he", "▁the", "er", "re", "here", "▁", "t", "h", "e", "r"}) {
    add(token, score--, GgufTokenType::normal);
  }
  vocabulary.bos_id = 1;
  vocabulary.eos_id = 2;
  vocabulary.unknown_id = 0;
  return vocabulary;
}

TEST(GgufTokenizer, SentencePieceMergesByScore) {
  const auto tokenizer = Tokenizer::from_gguf(sentence_piece());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto encode = [&](std::string_view text) {
    return tokenizer->encode(text, {.add_special_tokens = false}).value();
  };
  // _ t h e r: _t first, then he, then the two together; no token goes on from there.
  EXPECT_EQ(encode("ther"), (std::vector<int32_t>{261, 269}));
  // _ h e r e: he has a better score than er, then re, and he re is a token. With er first it would not come
  // about.
  EXPECT_EQ(encode("here"), (std::vector<int32_t>{265, 264}));
  EXPECT_EQ(encode("é"), (std::vector<int32_t>{265, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(encode("t<s>t"), (std::vector<int32_t>{259, 1, 259}));
  EXPECT_EQ(encode(" t"), (std::vector<int32_t>{265, 259}));
  EXPECT_EQ(tokenizer->encode("t"), (std::vector<int32_t>{1, 259}));
  EXPECT_EQ(tokenizer->decode(encode("the é here")), "the é here");
  EXPECT_EQ(tokenizer->decode(encode(" the")), " the");
  EXPECT_EQ(stream(*tokenizer, encode("the é here")), "the é here");
}

TEST(GgufTokenizer, ByteLevelFollowsTheNamedPreTokenizer) {
  GgufVocabulary vocabulary;
  vocabulary.source = "test.gguf";
  vocabulary.model = "gpt2";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  }
  for (const char* token : {"12", "123", "1234"}) vocabulary.tokens.emplace_back(token);
  vocabulary.merges = {"1 2", "12 3", "123 4", "gone away"};
  vocabulary.tokens.emplace_back("<|end|>");
  vocabulary.token_types.assign(vocabulary.tokens.size(), 1);
  vocabulary.token_types.back() = 3;
  const auto encode = [&](std::string pre) {
    vocabulary.pre = std::move(pre);
    return Tokenizer::from_gguf(vocabulary)->encode("1234<|end|>", {.add_special_tokens = false}).value();
  };
  EXPECT_EQ(encode("gpt-2"), (std::vector<int32_t>{258, 259}));
  EXPECT_EQ(encode("llama-bpe"), (std::vector<int32_t>{257, '4', 259}));
  EXPECT_EQ(encode("smollm"), (std::vector<int32_t>{'1', '2', '3', '4', 259}));
  vocabulary.pre = "nobody-knows";
  EXPECT_THAT(Tokenizer::from_gguf(vocabulary).error().message, HasSubstr("test.gguf: tokenizer.ggml.pre"));
  for (const char* pre : {"default", "falcon", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3",
                          "deepseek-coder", "bloom", "viking"}) {
    vocabulary.pre = pre;
    const auto tokenizer = Tokenizer::from_gguf(vocabulary);
    ASSERT_TRUE(tokenizer) << pre << ": " << tokenizer.error().message;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("Hi, it's 12345 ünï!\n\n 你好").value()),
              "Hi, it's 12345 ünï!\n\n 你好")
        << pre;
  }
}

TEST(GgufTokenizer, RefusesWhatContradictsItself) {
  GgufVocabulary vocabulary = sentence_piece();
  vocabulary.scores.pop_back();
  EXPECT_THAT(Tokenizer::from_gguf(vocabulary).error().message,
              HasSubstr("test.gguf: tokenizer.ggml.scores"));
  vocabulary = sentence_piece();
  vocabulary.token_types.push_back(1);
  EXPECT_THAT(Tokenizer::from_gguf(vocabulary).error().message, HasSubstr("tokenizer.ggml.token_type"));
  vocabulary = sentence_piece();
  vocabulary.bos_id = 100'000;
  EXPECT_THAT(Tokenizer::from_gguf(vocabulary).error().message, HasSubstr("tokenizer.ggml.bos_token_id"));
  vocabulary = sentence_piece();
  vocabulary.model = "bert";
  EXPECT_THAT(Tokenizer::from_gguf(vocabulary).error().message, HasSubstr("tokenizer.ggml.model: \"bert\""));
}

}  // namespace
}  // namespace kv8::text
