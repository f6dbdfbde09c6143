// Chat templates: the real ones of the tokenizer fixtures, and how a request reaches its template.
#include "text/chat_template.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.h"
#include "text/tokenizer_test_util.h"

namespace kv8::text {
namespace {

using testing::HasSubstr;

// "bos_token" and the like are strings or objects with a "content".
std::map<std::string, std::string> special_tokens(const OrderedJson& config) {
  std::map<std::string, std::string> tokens;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    if (value.is_string()) tokens[key] = value;
    if (value.is_object() && value.contains("content")) tokens[key] = value["content"];
  }
  return tokens;
}

ChatRequest request_of(const OrderedJson& golden) {
  ChatRequest request;
  request.messages = golden["messages"];
  if (!golden["tools"].is_null()) request.tools = golden["tools"];
  request.variables = golden["kwargs"];
  request.clock = [] {  // the Llama template's own default date, for a template that asks for today's
    std::tm day{};
    day.tm_year = 124;
    day.tm_mon = 6;
    day.tm_mday = 26;
    return day;
  };
  return request;
}

TEST(ChatTemplate, RendersTheRealTemplatesExactly) {
  const auto folder = kv8::test::tokenizer_fixtures();
  if (folder.empty()) {
    GTEST_SKIP()
        << "THE REAL CHAT TEMPLATES ARE NOT TESTED: no tokenizers/golden.json.gz under KV8_FIXTURES or "
           "../shared/fixtures";
  }
  const auto goldens = parse_ordered_json(test::read_gzip(folder / "golden.json.gz"), "golden.json.gz");
  ASSERT_TRUE(goldens) << goldens.error().message;
  size_t examples = 0;
  for (const auto& [name, golden] : goldens->items()) {
    const auto config = parse_ordered_json(test::read_gzip(folder / name / "tokenizer_config.json.gz"),
                                           "tokenizer_config.json.gz");
    ASSERT_TRUE(config) << config.error().message;
    if (golden["chat"].empty()) continue;
    auto chat = ChatTemplate::create((*config)["chat_template"], special_tokens(*config), name);
    ASSERT_TRUE(chat) << chat.error().message;
    for (const auto& example : golden["chat"]) {
      const auto text = chat->render(request_of(example));
      if (example.contains("error")) {
        ASSERT_FALSE(text) << name;
        EXPECT_THAT(text.error().message, HasSubstr(example["error"].get<std::string>()));
      } else {
        ASSERT_TRUE(text) << name << ": " << text.error().message;
        EXPECT_EQ(*text, example["rendered"].get<std::string>()) << name;
      }
      ++examples;
    }
  }
  EXPECT_GT(examples, 0U) << "the golden file has no chats";
}

TEST(ChatTemplate, TheTemplateSeesTheWholeRequest) {
  auto chat = ChatTemplate::create(
      "{{ bos_token }}{{ pad_token is defined }} {{ messages|length }}{{ messages[0].role }} {{ tools|tojson "
      "}} {{ documents }} "
      "{{ add_generation_prompt }} {{ enable_thinking }} {{ strftime_now('%d %b %Y') }}",
      {{"bos_token", "<s>"}});
  ASSERT_TRUE(chat) << chat.error().message;
  ChatRequest request;
  request.messages = OrderedJson::parse(R"([{"role": "user", "content": "Hi"}])");
  request.variables = {{"enable_thinking", false}};
  request.clock = [] {
    std::tm day{};
    day.tm_year = 99;
    day.tm_mday = 2;
    return day;
  };
  EXPECT_EQ(*chat->render(request), "<s>False 1user null None True False 02 Jan 1999");
  request.tools = OrderedJson::parse(R"([{"z": 1, "a": "<é>"}])");
  request.documents = OrderedJson::parse("[1]");
  request.add_generation_prompt = false;
  EXPECT_EQ(*chat->render(request),
            "<s>False 1user [{\"z\": 1, \"a\": \"<é>\"}] [1] False False 02 Jan 1999");
}

TEST(ChatTemplate, WhatIsWrongIsAnErrorWithItsPlace) {
  EXPECT_THAT(ChatTemplate::create("{% if %}", {}, "model/chat_template.jinja").error().message,
              HasSubstr("model/chat_template.jinja: line 1, column 7"));
  auto chat = ChatTemplate::create("{{ raise_exception('Only user and assistant roles are supported!') }}",
                                   {}, "x.jinja");
  ASSERT_TRUE(chat);
  ChatRequest request;
  EXPECT_EQ(chat->render(request).error().message,
            "x.jinja: line 1, column 19: Only user and assistant roles are supported!");
  request.messages = "text";
  EXPECT_THAT(chat->render(request).error().message, HasSubstr("messages must be an array"));
  request.messages = OrderedJson::array();
  request.tools = 5;
  EXPECT_THAT(chat->render(request).error().message, HasSubstr("tools must be an array"));
}

}  // namespace
}  // namespace kv8::text
