#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "text/jinja/parser.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

namespace {

constexpr int kMaxTreeDepth = 400;

int depth_below(const ExpressionPtr& expression) {
  return expression ? expression->depth : 0;
}

int depth_below(const Expressions& expressions) {
  int depth = 0;
  for (const auto& expression : expressions) depth = std::max(depth, depth_below(expression));
  return depth;
}

int depth_below(const CallArguments& arguments) {
  int depth = std::max(
      {depth_below(arguments.positional), depth_below(arguments.star), depth_below(arguments.double_star)});
  for (const auto& argument : arguments.keyword) depth = std::max(depth, depth_below(argument.second));
  return depth;
}

template <class Node>
ExpressionPtr make(Position at, int depth_below, Node node) {
  if (depth_below >= kMaxTreeDepth)
    fail_at(at, "the expression nests more than {} levels deep", kMaxTreeDepth);
  auto expression = std::make_unique<Expression>();
  expression->at = at;
  expression->depth = depth_below + 1;
  expression->node = std::move(node);
  return expression;
}

ExpressionPtr make_binary(Position at, BinaryOperator op, ExpressionPtr left, ExpressionPtr right) {
  const int depth = std::max(depth_below(left), depth_below(right));
  return make(at, depth, Binary{op, std::move(left), std::move(right)});
}

template <class Operator>
struct Symbol {
  std::string_view text;
  Operator op;
};
constexpr std::array<Symbol<BinaryOperator>, 2> kSumOperators = {
    {{"+", BinaryOperator::add}, {"-", BinaryOperator::subtract}}};
constexpr std::array<Symbol<BinaryOperator>, 4> kProductOperators = {{{"*", BinaryOperator::multiply},
                                                                      {"/", BinaryOperator::divide},
                                                                      {"//", BinaryOperator::floor_divide},
                                                                      {"%", BinaryOperator::modulo}}};
constexpr std::array<Symbol<Comparison>, 6> kComparisonOperators = {{{"==", Comparison::equal},
                                                                     {"!=", Comparison::not_equal},
                                                                     {"<", Comparison::less},
                                                                     {"<=", Comparison::less_equal},
                                                                     {">", Comparison::greater},
                                                                     {">=", Comparison::greater_equal}}};

template <class Operators>
auto find_operator(const Operators& operators, const Token& token) {
  return std::find_if(operators.begin(), operators.end(),
                      [&](const auto& symbol) { return token.is_op(symbol.text); });
}

}  // namespace

ExpressionPtr Parser::parse_expression() {
  const Nested nested(*this);
  ExpressionPtr value = parse_or();
  while (current().is_name("if")) {
    const Position at = take().at;
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    const int depth = std::max({depth_below(value), depth_below(test), depth_below(otherwise)});
    value = make(at, depth, Conditional{std::move(test), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (current().is_name("or")) {
    const Position at = take().at;
    ExpressionPtr right = parse_and();
    const int depth = std::max(depth_below(left), depth_below(right));
    left = make(at, depth, Logical{false, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (current().is_name("and")) {
    const Position at = take().at;
    ExpressionPtr right = parse_not();
    const int depth = std::max(depth_below(left), depth_below(right));
    left = make(at, depth, Logical{true, std::move(left), std::move(right)});
  }
  return left;
}

ExpressionPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_comparison();
  const Nested nested(*this);
  const Position at = take().at;
  ExpressionPtr operand = parse_not();
  const int depth = depth_below(operand);
  return make(at, depth, Unary{UnaryOperator::logical_not, std::move(operand)});
}

ExpressionPtr Parser::parse_comparison() {
  const Position at = current().at;
  ExpressionPtr first = parse_sum();
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  int depth = depth_below(first);
  while (true) {
    Comparison op = Comparison::in;
    if (const auto symbol = find_operator(kComparisonOperators, current());
        symbol != kComparisonOperators.end()) {
      op = symbol->op;
      take();
    } else if (current().is_name("not") && look().is_name("in")) {
      op = Comparison::not_in;
      take();
      take();
    } else if (!skip_name("in")) {
      break;
    }
    rest.emplace_back(op, parse_sum());
    depth = std::max(depth, depth_below(rest.back().second));
  }
  if (rest.empty()) return first;
  return make(at, depth, ComparisonChain{std::move(first), std::move(rest)});
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concatenation();
  for (auto symbol = find_operator(kSumOperators, current()); symbol != kSumOperators.end();
       symbol = find_operator(kSumOperators, current())) {
    const Position at = take().at;
    left = make_binary(at, symbol->op, std::move(left), parse_concatenation());
  }
  return left;
}

ExpressionPtr Parser::parse_concatenation() {
  const Position at = current().at;
  Expressions items;
  items.push_back(parse_product());
  while (skip_op("~")) items.push_back(parse_product());
  if (items.size() == 1) return std::move(items[0]);
  const int depth = depth_below(items);
  return make(at, depth, Concatenation{std::move(items)});
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  for (auto symbol = find_operator(kProductOperators, current()); symbol != kProductOperators.end();
       symbol = find_operator(kProductOperators, current())) {
    const Position at = take().at;
    left = make_binary(at, symbol->op, std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (current().is_op("**")) {
    const Position at = take().at;
    left = make_binary(at, BinaryOperator::power, std::move(left), parse_unary());
  }
  return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const Nested nested(*this);
  ExpressionPtr value;
  if (current().is_op("-") || current().is_op("+")) {
    const Token sign = take();
    ExpressionPtr operand = parse_unary(false);
    const int depth = depth_below(operand);
    value = make(sign.at, depth,
                 Unary{sign.text == "-" ? UnaryOperator::negate : UnaryOperator::plus, std::move(operand)});
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_primary() {
  const Position at = current().at;
  switch (current().kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string:
      return parse_string();
    case TokenKind::integer:
      return parse_integer();
    case TokenKind::floating:
      return make(at, 0, Constant{Value(std::strtod(take().text.c_str(), nullptr))});
    default:
      break;
  }
  if (current().is_op("[")) return parse_list();
  if (current().is_op("{")) return parse_dict();
  if (!current().is_op("(")) fail_unexpected("an expression");
  take();
  const Nested nested(*this);
  ExpressionPtr value = parse_tuple({.parentheses = true});
  expect_op(")");
  return value;
}

ExpressionPtr Parser::parse_name() {
  static const std::vector<std::pair<std::string_view, Value>> constants = {
      {"true", Value(true)},   {"True", Value(true)}, {"false", Value(false)},
      {"False", Value(false)}, {"none", Value()},     {"None", Value()}};
  Token token = take();
  for (const auto& [name, value] : constants) {
    if (token.text == name) return make(token.at, 0, Constant{value});
  }
  for (MacroDefinition* macro : macros_) {
    macro->uses_varargs = macro->uses_varargs || token.text == "varargs";
    macro->uses_kwargs = macro->uses_kwargs || token.text == "kwargs";
    macro->uses_caller = macro->uses_caller || token.text == "caller";
  }
  return make(token.at, 0, Name{std::move(token.text)});
}

ExpressionPtr Parser::parse_string() {
  const Position at = current().at;
  std::string text;
  while (current().kind == TokenKind::string) text += take().text;
  return make(at, 0, Constant{Value(std::move(text))});
}

ExpressionPtr Parser::parse_integer() {
  const Token token = take();
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ec != std::errc{}) fail_at(token.at, "the integer {} has more than 64 bits", token.text);
  return make(token.at, 0, Constant{Value(value)});
}

ExpressionPtr Parser::parse_list() {
  const Position at = take().at;
  Expressions items;
  while (!current().is_op("]")) {
    if (!items.empty()) expect_op(",");
    if (current().is_op("]")) break;
    items.push_back(parse_expression());
  }
  expect_op("]");
  const int depth = depth_below(items);
  return make(at, depth, ListLiteral{std::move(items)});
}

ExpressionPtr Parser::parse_dict() {
  const Position at = take().at;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  int depth = 0;
  while (!current().is_op("}")) {
    if (!items.empty()) expect_op(",");
    if (current().is_op("}")) break;
    ExpressionPtr key = parse_expression();
    expect_op(":");
    ExpressionPtr value = parse_expression();
    depth = std::max({depth, depth_below(key), depth_below(value)});
    items.emplace_back(std::move(key), std::move(value));
  }
  expect_op("}");
  return make(at, depth, DictLiteral{std::move(items)});
}

ExpressionPtr Parser::parse_tuple(const TupleRules& rules) {
  const Position at = current().at;
  Expressions items;
  bool is_tuple = false;
  while (true) {
    const bool ended = this->at(TokenKind::print_end) || this->at(TokenKind::block_end) ||
                       current().is_op(")") || (!rules.end_name.empty() && current().is_name(rules.end_name));
    if (ended) break;
    items.push_back(rules.with_conditional ? parse_expression() : parse_or());
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!rules.parentheses) fail_unexpected("an expression");
  }
  const int depth = depth_below(items);
  return make(at, depth, TupleLiteral{std::move(items)});
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (current().is_op(".")) {
      value = parse_dot(std::move(value));
    } else if (current().is_op("[")) {
      value = parse_subscript(std::move(value));
    } else if (current().is_op("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (current().is_op("|")) {
      value = parse_filter(std::move(value));
    } else if (current().is_name("is")) {
      value = parse_test(std::move(value));
    } else if (current().is_op("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::parse_dot(ExpressionPtr object) {
  const Position at = take().at;
  const int depth = depth_below(object);
  if (this->at(TokenKind::name)) return make(at, depth, Attribute{std::move(object), take().text});
  if (!this->at(TokenKind::integer)) fail_unexpected("a name or number");
  return make(at, depth, Subscript{std::move(object), parse_integer()});
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
  const Position at = take().at;
  const Nested nested(*this);
  Expressions parts(3);  // start, stop, step
  size_t part = 0;
  Expressions items;
  while (true) {
    if (current().is_op(":")) {
      if (!items.empty()) fail_unexpected("']'");  // slices of several dimensions aren't for any value here
      if (++part > 2) fail_unexpected("']'");
      take();
    } else if (current().is_op(",")) {
      if (part > 0 || parts[0] == nullptr) fail_unexpected("']'");
      items.push_back(std::move(parts[0]));
      take();
    } else if (current().is_op("]")) {
      break;
    } else {
      if (parts[part] != nullptr) fail_unexpected("']'");
      parts[part] = parse_expression();
    }
  }
  take();
  int depth = std::max({depth_below(object), depth_below(parts), depth_below(items)});
  if (part > 0)
    return make(at, depth,
                SliceOf{std::move(object), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])});
  ExpressionPtr index = std::move(parts[0]);
  if (!items.empty()) {
    if (index == nullptr) fail_at(at, "expected an expression after ','");
    items.push_back(std::move(index));
    index = make(at, depth++, TupleLiteral{std::move(items)});
  }
  if (index == nullptr) fail_at(at, "expected a subscript expression");
  return make(at, depth, Subscript{std::move(object), std::move(index)});
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  const Position at = current().at;
  CallArguments arguments = parse_arguments();
  const int depth = std::max(depth_below(callee), depth_below(arguments));
  return make(at, depth, CallOf{std::move(callee), std::move(arguments)});
}

CallArguments Parser::parse_arguments() {
  const Nested nested(*this);
  CallArguments arguments;
  expect_op("(");
  const auto ensure = [&](bool valid) {
    if (!valid) fail_at(current().at, "invalid syntax for function call expression");
  };
  for (bool first = true; !current().is_op(")"); first = false) {
    if (!first) expect_op(",");
    if (current().is_op(")")) break;
    if (skip_op("*")) {
      ensure(!arguments.star && !arguments.double_star);
      arguments.star = parse_expression();
    } else if (skip_op("**")) {
      ensure(!arguments.double_star);
      arguments.double_star = parse_expression();
    } else if (at(TokenKind::name) && look().is_op("=")) {
      ensure(!arguments.double_star);
      std::string name = take().text;
      take();
      arguments.keyword.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!arguments.star && !arguments.double_star && arguments.keyword.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  expect_op(")");
  return arguments;
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_op(".")) name.append(1, '.').append(expect_name());
  return name;
}

ExpressionPtr Parser::parse_filter(ExpressionPtr input, bool first_without_pipe) {
  while (current().is_op("|") || first_without_pipe) {
    if (!first_without_pipe) take();
    first_without_pipe = false;
    const Position at = current().at;
    std::string name = parse_dotted_name();
    CallArguments arguments = current().is_op("(") ? parse_arguments() : CallArguments{};
    const int depth = std::max(depth_below(input), depth_below(arguments));
    input = make(at, depth, FilterOf{std::move(input), std::move(name), std::move(arguments)});
  }
  return input;
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  const Position at = take().at;
  const bool negated = skip_name("not");
  std::string name = parse_dotted_name();
  CallArguments arguments;
  const Token& next = current();
  const bool operand = next.kind == TokenKind::name || next.kind == TokenKind::string ||
                       next.kind == TokenKind::integer || next.kind == TokenKind::floating ||
                       next.is_op("[") || next.is_op("{");
  if (next.is_op("(")) {
    arguments = parse_arguments();
  } else if (operand && !next.is_name("else") && !next.is_name("or") && !next.is_name("and")) {
    if (next.is_name("is")) fail_at(next.at, "You cannot chain multiple tests with is");
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  const int depth = std::max(depth_below(input), depth_below(arguments));
  return make(at, depth, TestOf{std::move(input), std::move(name), std::move(arguments), negated});
}

}  // namespace kv8::text::jinja
