// The functions every template has (range, namespace, raise_exception, ...) and the objects they make.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/arguments.h"
#include "text/jinja/scope.h"

namespace kv8::text::jinja {

const Native* find_global(std::string_view name);  // nullptr if there is none
std::span<const Native> all_globals();

// namespace(): attributes that can be assigned from inner scopes.
class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::string repr() const override;
  std::optional<Value> attribute(std::string_view name) override;
  void set(std::string_view name, Value value) { attributes_.set(name, std::move(value)); }
  void clear() { attributes_.clear(); }

 private:
  Variables attributes_;
};

}  // namespace kv8::text::jinja
