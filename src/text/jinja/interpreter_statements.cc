#include <algorithm>

#include "text/jinja/failure.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/loop.h"
#include "text/jinja/macro.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

// Sends the output to a buffer of its own, for as long as it lives.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.output_, &buffer_)) {}
  ~Capture() {
    interpreter_.written_ -= buffer_.size();
    interpreter_.output_ = outer_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  const std::string& text() const { return buffer_; }

 private:
  Interpreter& interpreter_;
  std::string buffer_;
  std::string* outer_;
};

class Interpreter::InScope {
 public:
  InScope(Interpreter& interpreter, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~InScope() { interpreter_.scope_ = std::move(outer_); }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> outer_;
};

Interpreter::Interpreter(Budget& budget, const RenderHooks& hooks, Value context)
    : budget_(budget),
      hooks_(hooks),
      context_(std::move(context)),
      scope_(std::make_shared<Scope>(nullptr)) {}

Interpreter::~Interpreter() {
  for (const auto& scope : captured_scopes_) scope->clear();
  for (const auto& space : namespaces_) space->clear();
}

std::string Interpreter::run(const Body& body) {
  Capture capture(*this);
  execute(body);
  return capture.text();
}

Value Interpreter::evaluate_in(const std::shared_ptr<Scope>& scope, const Expression& expression) {
  const InScope inside(*this, scope);
  return evaluate(expression);
}

std::string Interpreter::capture_in(const std::shared_ptr<Scope>& scope, const Body& body) {
  const InScope inside(*this, scope);
  Capture capture(*this);
  execute(body);
  return capture.text();
}

std::string Interpreter::capture_loop(const std::shared_ptr<Scope>& scope, const For& loop,
                                      const Value& iterable, int64_t depth) {
  const InScope inside(*this, scope);
  Capture capture(*this);
  run_loop(loop, iterable, depth);
  return capture.text();
}

std::shared_ptr<Namespace> Interpreter::make_namespace() {
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

void Interpreter::write(std::string_view text) {
  spend_pass(text.size());
  written_ += text.size();
  budget_.output(written_);
  output_->append(text);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    if (const Flow flow = execute(statement); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const Level level(budget_);
  try {
    budget_.step();
    return std::visit([this](const auto& node) { return exec(node); }, statement.node);
  } catch (Failure& failure) {
    if (failure.at.line == 0) failure.at = statement.at;
    throw;
  }
}

Interpreter::Flow Interpreter::exec(const Text& node) {
  write(node.text);
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const Print& node) {
  write(to_text(evaluate(*node.value)));
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const If& node) {
  for (const auto& [test, body] : node.branches) {
    if (truth(evaluate(*test))) return execute(body);
  }
  return execute(node.otherwise);
}

Interpreter::Flow Interpreter::exec(const For& node) {
  return run_loop(node, evaluate(*node.iterable), 0);
}

// The flow it returns is that of a `break` in the else part, which leaves the loop further out.
Interpreter::Flow Interpreter::run_loop(const For& loop, const Value& iterable, int64_t depth) {
  const auto outer = scope_;
  Loop::Condition condition;
  if (loop.condition) {
    condition = [this, &loop, outer](const Value& item) {
      const InScope inside(*this, std::make_shared<Scope>(outer));
      assign(loop.target, item);
      return truth(evaluate(*loop.condition));
    };
  }
  Loop::Recursion recursion;
  if (loop.recursive) {
    recursion = [this, &loop, outer](const Value& items, int64_t inner_depth) {
      return Value(capture_loop(outer, loop, items, inner_depth));
    };
  }
  const auto state = std::make_shared<Loop>(iterable, std::move(condition), std::move(recursion), depth);
  const Loop::Ending ending(*state);
  bool completed_one =
      false;  // as in Jinja2, an iteration left by break or continue doesn't count for `else`
  while (state->advance()) {
    const InScope inside(*this, std::make_shared<Scope>(outer));
    assign(loop.target, state->item());
    scope_->set("loop", Value(std::static_pointer_cast<Object>(state)));
    const Flow flow = execute(loop.body);
    if (flow == Flow::break_loop) break;
    completed_one = completed_one || flow == Flow::normal;
  }
  if (!completed_one && !loop.otherwise.empty()) {
    const InScope inside(*this, std::make_shared<Scope>(outer));
    return execute(loop.otherwise);
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const SetBlock& node) {
  Value text;
  {
    const InScope inside(*this, std::make_shared<Scope>(scope_));
    Capture capture(*this);
    if (const Flow flow = execute(node.body); flow != Flow::normal) return flow;
    text = Value(capture.text());
  }
  assign(node.target, node.filter ? apply_filter_chain(*node.filter, text) : text);
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const With& node) {
  const auto inner = std::make_shared<Scope>(scope_);
  for (const auto& [target, expression] : node.values) {
    const Value value = evaluate(*expression);
    const InScope inside(*this, inner);
    assign(target, value);
  }
  const InScope inside(*this, inner);
  return execute(node.body);
}

Interpreter::Flow Interpreter::exec(const FilterBlock& node) {
  Value text;
  {
    const InScope inside(*this, std::make_shared<Scope>(scope_));
    Capture capture(*this);
    if (const Flow flow = execute(node.body); flow != Flow::normal) return flow;
    text = Value(capture.text());
  }
  write(to_text(apply_filter_chain(*node.filter, text)));
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const MacroDefinition& node) {
  scope_->set(node.name, make_macro(node));
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const CallBlock& node) {
  const auto& call_node = std::get<CallOf>(node.call->node);
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate_arguments(call_node.arguments);
  arguments.keyword.emplace_back("caller", make_macro(node.caller));
  write(to_text(call(callee, arguments)));
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const Do& node) {
  evaluate(*node.value);
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec(const Scoped& node) {
  const InScope inside(*this, std::make_shared<Scope>(scope_));
  return execute(node.body);
}

Interpreter::Flow Interpreter::exec(const Break&) {
  return Flow::break_loop;
}

Interpreter::Flow Interpreter::exec(const Continue&) {
  return Flow::continue_loop;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = to_vector(value);
    const size_t expected = target.items.size();
    if (items.size() < expected)
      fail("not enough values to unpack (expected {}, got {})", expected, items.size());
    if (items.size() > expected) fail("too many values to unpack (expected {})", expected);
    for (size_t i = 0; i < expected; ++i) assign(target.items[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    scope_->set(target.name, value);
    return;
  }
  const Value* object = scope_->find(target.name);
  auto* space = object == nullptr ? nullptr : object->as_object<Namespace>();
  if (space == nullptr) fail("cannot assign attribute on non-namespace object '{}'", target.name);
  space->set(target.attribute, value);
}

Value Interpreter::make_macro(const MacroDefinition& definition) {
  if (captured_scopes_.empty() || captured_scopes_.back() != scope_) captured_scopes_.push_back(scope_);
  return Value(std::static_pointer_cast<Object>(std::make_shared<Macro>(definition, scope_)));
}

}  // namespace kv8::text::jinja
