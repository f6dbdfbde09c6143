#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/failure.h"

namespace kv8::text::jinja {

namespace {

struct Parameter {
  std::string_view name;
  bool optional;
};

std::vector<Parameter> parse_parameters(std::string_view text) {
  std::vector<Parameter> parameters;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    std::string_view name = text.substr(0, space);
    const bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    parameters.push_back({name, optional});
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return parameters;
}

}  // namespace

const Value* Arguments::find(std::string_view name) const {
  spend_copies(keyword.size());
  for (const auto& [key, value] : keyword) {
    if (key == name) return &value;
  }
  return nullptr;
}

Bound::Bound(std::string_view function, std::string_view parameters, const Arguments& arguments)
    : function_(function), arguments_(arguments) {
  if (parameters == "*") return;
  spend_copies(arguments.positional.size() + arguments.keyword.size());
  const auto expected = parse_parameters(parameters);
  if (arguments.positional.size() > expected.size()) {
    fail("{}() takes at most {} arguments ({} given)", function, expected.size(),
         arguments.positional.size());
  }
  values_.resize(expected.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    const auto it =
        std::find_if(expected.begin(), expected.end(),
                     [&, &key = name](const Parameter& parameter) { return parameter.name == key; });
    if (it == expected.end()) fail("{}() got an unexpected keyword argument '{}'", function, name);
    auto& slot = values_[static_cast<size_t>(it - expected.begin())];
    if (slot) fail("{}() got multiple values for argument '{}'", function, name);
    slot = value;
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!values_[i] && !expected[i].optional) {
      fail("{}() is missing the argument '{}'", function, expected[i].name);
    }
  }
}

int64_t Bound::integer(size_t index, std::optional<int64_t> fallback) const {
  if (!has(index) && fallback) return *fallback;
  const Value& value = (*this)[index];
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integer()) fail("{}() expects an integer, not {}", function_, type_name(value));
  return value.integer();
}

std::string Bound::text(size_t index, std::optional<std::string> fallback) const {
  if (!has(index) && fallback) return std::move(*fallback);
  const Value& value = (*this)[index];
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) fail("{}() expects a string, not {}", function_, type_name(value));
  return value.string();
}

std::optional<std::string> Bound::optional_text(size_t index) const {
  if (!has(index) || (*this)[index].is_none()) return std::nullopt;
  return text(index);
}

bool Bound::flag(size_t index, bool fallback) const {
  return has(index) ? truth((*this)[index]) : fallback;
}

const Native* find_native(std::span<const Native> table, std::string_view name) {
  const auto it =
      std::find_if(table.begin(), table.end(), [&](const Native& row) { return row.name == name; });
  return it == table.end() ? nullptr : &*it;
}

bool NativeObject::equals(const Object& other) const {
  const auto* method = dynamic_cast<const NativeObject*>(&other);
  return method != nullptr && &method->native_ == &native_ && equal(method->self_, self_);
}

}  // namespace kv8::text::jinja
