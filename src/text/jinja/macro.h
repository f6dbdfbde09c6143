// A macro, or the body of a call block: a function whose value is the text it writes. It sees the variables
// of the scope that it was defined in.
#pragma once

#include <memory>

#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/scope.h"

namespace kv8::text::jinja {

class Macro : public Object {
 public:
  // definition lives as long as the template; the interpreter empties scope at the end of the rendering.
  Macro(const MacroDefinition& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)), charge_(sizeof(Macro)) {}

  std::string type_name() const override { return "Macro"; }
  std::string repr() const override;
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;

 private:
  bool has_parameter(std::string_view name) const;

  const MacroDefinition& definition_;
  std::shared_ptr<Scope> scope_;
  Charge charge_;
};

}  // namespace kv8::text::jinja
