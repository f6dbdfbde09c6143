// Renders a syntax tree: one Interpreter for one rendering. Throws Failure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/globals.h"
#include "text/jinja/hooks.h"
#include "text/jinja/scope.h"

namespace kv8::text::jinja {

class Interpreter {
 public:
  // context: a dict, the template's variables. budget must be the current one.
  Interpreter(Budget& budget, const RenderHooks& hooks, Value context);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Body& body);

  // For filters, macros and loops.
  Value call(const Value& callee, const Arguments& arguments);
  Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);
  Value evaluate_in(const std::shared_ptr<Scope>& scope, const Expression& expression);
  std::string capture_in(const std::shared_ptr<Scope>& scope, const Body& body);
  std::string capture_loop(const std::shared_ptr<Scope>& scope, const For& loop, const Value& iterable,
                           int64_t depth);
  std::shared_ptr<Namespace> make_namespace();
  const RenderHooks& hooks() const { return hooks_; }

 private:
  enum class Flow : uint8_t { normal, break_loop, continue_loop };
  class Capture;
  class InScope;

  // Expressions (interpreter_expressions.cc).
  Value evaluate(const Expression& expression);
  Value evaluate_or_none(const ExpressionPtr& expression);
  Value eval(const Constant& node);
  Value eval(const Name& node);
  Value eval(const ListLiteral& node);
  Value eval(const TupleLiteral& node);
  Value eval(const DictLiteral& node);
  Value eval(const Unary& node);
  Value eval(const Binary& node);
  Value eval(const Logical& node);
  Value eval(const Concatenation& node);
  Value eval(const ComparisonChain& node);
  Value eval(const Conditional& node);
  Value eval(const Attribute& node);
  Value eval(const Subscript& node);
  Value eval(const SliceOf& node);
  Value eval(const CallOf& node);
  Value eval(const FilterOf& node);
  Value eval(const TestOf& node);
  std::vector<Value> evaluate_all(const Expressions& expressions);
  Arguments evaluate_arguments(const CallArguments& arguments);
  Value apply_filter_chain(const Expression& filter, const Value& text);

  // Statements (interpreter_statements.cc).
  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow exec(const Text& node);
  Flow exec(const Print& node);
  Flow exec(const If& node);
  Flow exec(const For& node);
  Flow exec(const Set& node);
  Flow exec(const SetBlock& node);
  Flow exec(const With& node);
  Flow exec(const FilterBlock& node);
  Flow exec(const MacroDefinition& node);
  Flow exec(const CallBlock& node);
  Flow exec(const Do& node);
  Flow exec(const Scoped& node);
  Flow exec(const Break& node);
  Flow exec(const Continue& node);
  Flow run_loop(const For& loop, const Value& iterable, int64_t depth);
  void assign(const Target& target, const Value& value);
  void write(std::string_view text);
  Value make_macro(const MacroDefinition& definition);

  Budget& budget_;
  const RenderHooks& hooks_;
  Value context_;
  std::shared_ptr<Scope> scope_;
  std::string* output_ = nullptr;
  size_t written_ = 0;  // bytes in all buffers together
  // What can hold itself through a macro or a namespace: emptied at the end.
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace kv8::text::jinja
