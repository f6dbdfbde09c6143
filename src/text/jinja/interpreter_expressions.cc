#include <algorithm>

#include "text/jinja/failure.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"
#include "text/jinja/tests.h"

namespace kv8::text::jinja {

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  const Level level(budget_);
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.kind() != Value::Kind::object || !callee.object().callable()) {
    fail("'{}' object is not callable", type_name(callee));
  }
  return callee.object().call(*this, arguments);
}

Value Interpreter::apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  budget_.step();
  const Level level(budget_);
  const Native* filter = find_filter(name);
  if (filter == nullptr) fail("No filter named {}.", repr(name));
  return (*filter)(*this, input, arguments);
}

bool Interpreter::apply_test(std::string_view name, const Value& input, const Arguments& arguments) {
  budget_.step();
  const Native* test = find_test(name);
  if (test == nullptr) fail("No test named {}.", repr(name));
  return truth((*test)(*this, input, arguments));
}

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(budget_);
  try {
    budget_.step();
    return std::visit([this](const auto& node) { return eval(node); }, expression.node);
  } catch (Failure& failure) {
    if (failure.at.line == 0) failure.at = expression.at;
    throw;
  }
}

Value Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression ? evaluate(*expression) : Value();
}

std::vector<Value> Interpreter::evaluate_all(const Expressions& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& expression : expressions) values.push_back(evaluate(*expression));
  return values;
}

Arguments Interpreter::evaluate_arguments(const CallArguments& arguments) {
  Arguments values;
  values.positional = evaluate_all(arguments.positional);
  const auto add_keyword = [&](const std::string& name, Value value) {
    if (values.find(name) != nullptr) fail("got multiple values for keyword argument '{}'", name);
    values.keyword.emplace_back(name, std::move(value));
  };
  for (const auto& [name, expression] : arguments.keyword) add_keyword(name, evaluate(*expression));
  if (arguments.star) {
    const auto more = to_vector(evaluate(*arguments.star));
    values.positional.insert(values.positional.end(), more.begin(), more.end());
  }
  if (arguments.double_star) {
    const Value more = evaluate(*arguments.double_star);
    if (!more.is_dict()) fail("argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [name, value] : more.dict().pairs()) {
      if (!name.is_string()) fail("keywords must be strings");
      add_keyword(name.string(), value);
    }
  }
  return values;
}

Value Interpreter::eval(const Constant& node) {
  return node.value;
}

Value Interpreter::eval(const Name& node) {
  if (const Value* value = scope_->find(node.name)) return *value;
  if (const Value* value = context_.dict().find(node.name)) return *value;
  if (const Native* function = find_global(node.name)) {
    return Value(std::static_pointer_cast<Object>(std::make_shared<NativeObject>(*function, Value())));
  }
  return Value::undefined(fmt::format("{} is undefined", repr(node.name)));
}

Value Interpreter::eval(const ListLiteral& node) {
  return Value::list(evaluate_all(node.items));
}

Value Interpreter::eval(const TupleLiteral& node) {
  return Value::tuple(evaluate_all(node.items));
}

Value Interpreter::eval(const DictLiteral& node) {
  std::vector<std::pair<Value, Value>> pairs;
  pairs.reserve(node.items.size());
  for (const auto& [key, value] : node.items) {
    Value first = evaluate(*key);
    pairs.emplace_back(std::move(first), evaluate(*value));
  }
  return Value::dict(std::move(pairs));
}

Value Interpreter::eval(const Unary& node) {
  return apply(node.op, evaluate(*node.operand));
}

Value Interpreter::eval(const Binary& node) {
  const Value left = evaluate(*node.left);
  return apply(node.op, left, evaluate(*node.right));
}

Value Interpreter::eval(const Logical& node) {
  Value left = evaluate(*node.left);
  return truth(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::eval(const Concatenation& node) {
  std::string text;
  for (const auto& item : node.items) {
    text += to_text(evaluate(*item));
    check_fits(text.size());
  }
  return Value(std::move(text));
}

Value Interpreter::eval(const ComparisonChain& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::eval(const Conditional& node) {
  if (truth(evaluate(*node.test))) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::eval(const Attribute& node) {
  return get_attribute(evaluate(*node.object), node.name);
}

Value Interpreter::eval(const Subscript& node) {
  const Value object = evaluate(*node.object);
  return get_item(object, evaluate(*node.index));
}

Value Interpreter::eval(const SliceOf& node) {
  const Value object = evaluate(*node.object);
  const Value start = evaluate_or_none(node.start);
  const Value stop = evaluate_or_none(node.stop);
  return slice(object, start, stop, evaluate_or_none(node.step));
}

Value Interpreter::eval(const CallOf& node) {
  const Value callee = evaluate(*node.callee);
  return call(callee, evaluate_arguments(node.arguments));
}

Value Interpreter::eval(const FilterOf& node) {
  const Value input = evaluate(*node.input);
  return apply_filter(node.name, input, evaluate_arguments(node.arguments));
}

Value Interpreter::eval(const TestOf& node) {
  const Value input = evaluate(*node.input);
  return Value(apply_test(node.name, input, evaluate_arguments(node.arguments)) != node.negated);
}

Value Interpreter::apply_filter_chain(const Expression& filter, const Value& text) {
  const Level level(budget_);
  const auto& node = std::get<FilterOf>(filter.node);
  const Value input = node.input ? apply_filter_chain(*node.input, text) : text;
  try {
    return apply_filter(node.name, input, evaluate_arguments(node.arguments));
  } catch (Failure& failure) {
    if (failure.at.line == 0) failure.at = filter.at;
    throw;
  }
}

}  // namespace kv8::text::jinja
