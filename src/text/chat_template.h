// A model's chat template: from messages to the text of the prompt, as transformers' apply_chat_template does
// it.
#pragma once

#include <ctime>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "text/jinja/template.h"

namespace kv8::text {

struct ChatRequest {
  OrderedJson messages = OrderedJson::array();  // [{"role": ..., "content": ..., ...}, ...]
  std::optional<OrderedJson> tools;      // an array of function schemas; the template sees none without
  std::optional<OrderedJson> documents;  // an array, likewise
  bool add_generation_prompt = true;
  OrderedJson variables =
      OrderedJson::object();       // more for the template: enable_thinking, reasoning_effort, ...
  std::function<std::tm()> clock;  // the local time for strftime_now; the system's if empty
};

class ChatTemplate {
 public:
  // special_tokens: "bos_token", "eos_token", ... and their text; leave out those that the model hasn't.
  // name stands in messages: the file that the source is from.
  static Expected<ChatTemplate> create(std::string source, std::map<std::string, std::string> special_tokens,
                                       std::string name = "chat template");

  // What a template refuses (raise_exception) is invalid_argument, with the template's words.
  Expected<std::string> render(const ChatRequest& request, const jinja::RenderLimits& limits = {}) const;

 private:
  ChatTemplate(jinja::Template parsed, std::map<std::string, std::string> special_tokens)
      : template_(std::move(parsed)), special_tokens_(std::move(special_tokens)) {}

  jinja::Template template_;
  std::map<std::string, std::string> special_tokens_;
};

}  // namespace kv8::text
