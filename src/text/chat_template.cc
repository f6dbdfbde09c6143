#include "text/chat_template.h"

#include <utility>

namespace kv8::text {

namespace {

Status check_array(const OrderedJson& value, std::string_view field) {
  if (value.is_array()) return {};
  return make_error(ErrorCode::invalid_argument, "chat: {} must be an array", field);
}

}  // namespace

Expected<ChatTemplate> ChatTemplate::create(std::string source,
                                            std::map<std::string, std::string> special_tokens,
                                            std::string name) {
  KV8_ASSIGN_OR_RETURN(auto parsed, jinja::Template::parse(std::move(source), std::move(name)));
  return ChatTemplate(std::move(parsed), std::move(special_tokens));
}

Expected<std::string> ChatTemplate::render(const ChatRequest& request,
                                           const jinja::RenderLimits& limits) const {
  KV8_RETURN_IF_ERROR(check_array(request.messages, "messages"));
  if (request.tools) KV8_RETURN_IF_ERROR(check_array(*request.tools, "tools"));
  if (request.documents) KV8_RETURN_IF_ERROR(check_array(*request.documents, "documents"));
  if (!request.variables.is_object()) {
    return make_error(ErrorCode::invalid_argument, "chat: the template's variables must be an object");
  }
  OrderedJson context = OrderedJson::object();
  for (const auto& [name, text] : special_tokens_) context[name] = text;
  for (const auto& [name, value] : request.variables.items()) context[name] = value;
  context["messages"] = request.messages;
  context["tools"] = request.tools.value_or(nullptr);
  context["documents"] = request.documents.value_or(nullptr);
  context["add_generation_prompt"] = request.add_generation_prompt;
  return template_.render(context, limits, {request.clock});
}

}  // namespace kv8::text
