#include "text/jinja/macro.h"

#include <algorithm>

#include "text/jinja/failure.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

std::string Macro::repr() const {
  return fmt::format("<Macro {}>", jinja::repr(std::string_view(definition_.name)));
}

std::optional<Value> Macro::attribute(std::string_view name) {
  if (name == "name") return Value(definition_.name);
  if (name == "catch_kwargs") return Value(definition_.uses_kwargs);
  if (name == "catch_varargs") return Value(definition_.uses_varargs);
  if (name == "caller") return Value(definition_.uses_caller);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const Parameter& parameter : definition_.parameters) names.emplace_back(parameter.name);
  return Value::tuple(std::move(names));
}

bool Macro::has_parameter(std::string_view name) const {
  return std::any_of(definition_.parameters.begin(), definition_.parameters.end(),
                     [&](const Parameter& parameter) { return parameter.name == name; });
}

Value Macro::call(Interpreter& interpreter, const Arguments& arguments) {
  const auto& parameters = definition_.parameters;
  const auto& given = arguments.positional;
  const auto scope = std::make_shared<Scope>(scope_);
  auto keyword = arguments.keyword;
  const auto take_keyword = [&](std::string_view name) -> std::optional<Value> {
    spend_copies(keyword.size());
    const auto it =
        std::find_if(keyword.begin(), keyword.end(), [&](const auto& entry) { return entry.first == name; });
    if (it == keyword.end()) return std::nullopt;
    Value value = std::move(it->second);
    keyword.erase(it);
    return value;
  };

  spend_copies(parameters.size());
  std::vector<std::optional<Value>> values(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    values[i] = i < given.size() ? std::optional(given[i]) : take_keyword(parameters[i].name);
  }
  if (definition_.uses_caller && !has_parameter("caller")) {
    auto caller = take_keyword("caller");
    scope->set("caller", caller ? std::move(*caller) : Value::undefined("No caller defined"));
  }
  if (definition_.uses_kwargs) {
    std::vector<std::pair<Value, Value>> pairs;
    pairs.reserve(keyword.size());
    for (auto& [name, value] : keyword) pairs.emplace_back(Value(name), std::move(value));
    scope->set("kwargs", Value::dict(std::move(pairs)));
  } else if (!keyword.empty()) {
    fail("macro '{}' takes no keyword argument '{}'", definition_.name, keyword.front().first);
  }
  if (definition_.uses_varargs) {
    const auto first = given.begin() + static_cast<std::ptrdiff_t>(std::min(given.size(), parameters.size()));
    scope->set("varargs", Value::tuple({first, given.end()}));
  } else if (given.size() > parameters.size()) {
    fail("macro '{}' takes not more than {} argument(s)", definition_.name, parameters.size());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {  // a fallback may use the parameters before it
    const Parameter& parameter = parameters[i];
    if (!values[i] && parameter.fallback) values[i] = interpreter.evaluate_in(scope, *parameter.fallback);
    if (!values[i])
      values[i] = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    scope->set(parameter.name, std::move(*values[i]));
  }
  return Value(interpreter.capture_in(scope, definition_.body));
}

}  // namespace kv8::text::jinja
