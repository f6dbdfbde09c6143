#include <algorithm>
#include <array>

#include "text/jinja/parser.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

namespace {

constexpr int kMaxNesting = 120;

// Tags that need other files, or make sense only with those.
constexpr std::array<std::string_view, 6> kRefusedTags = {"include", "import", "from",
                                                          "extends", "block",  "autoescape"};

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end:
      return "end of template";
    case TokenKind::print_end:
      return "end of print statement";
    case TokenKind::block_end:
      return "end of statement block";
    case TokenKind::text:
      return "text";
    default:
      return repr(std::string_view(token.text));
  }
}

}  // namespace

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
  if (parser_.nesting_ >= kMaxNesting) {
    fail_at(parser_.current().at, "the template nests more than {} levels deep", kMaxNesting);
  }
  ++parser_.nesting_;
}

Token Parser::take() {
  if (at(TokenKind::end)) return current();
  return std::move(tokens_[at_++]);
}

bool Parser::skip_op(std::string_view symbol) {
  if (!current().is_op(symbol)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view symbol) {
  if (!skip_op(symbol)) fail_unexpected(fmt::format("'{}'", symbol));
}

void Parser::expect(TokenKind kind) {
  if (!at(kind)) fail_unexpected(describe({kind, "", {}}));
  take();
}

std::string Parser::expect_name() {
  if (!at(TokenKind::name)) fail_unexpected("a name");
  return take().text;
}

void Parser::fail_unexpected(std::string_view expected) const {
  fail_at(current().at, "expected {}, got {}", expected, describe(current()));
}

Body Parser::parse() {
  return parse_body({});
}

Body Parser::parse_body(std::vector<std::string_view> ends) {
  const Nested nested(*this);
  Body body;
  while (true) {
    const Position at = current().at;
    switch (current().kind) {
      case TokenKind::text:
        body.push_back({at, Text{take().text}});
        break;
      case TokenKind::print_begin:
        take();
        body.push_back({at, Print{parse_tuple()}});
        expect(TokenKind::print_end);
        break;
      case TokenKind::block_begin:
        take();
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return current().is_name(end); }))
          return body;
        body.push_back(parse_statement());
        expect(TokenKind::block_end);
        break;
      default:
        if (!ends.empty()) fail_at(at, "unexpected end of template: expected the tag '{}'", ends.back());
        return body;
    }
  }
}

Body Parser::parse_block(std::string_view end) {
  skip_op(":");
  expect(TokenKind::block_end);
  Body body = parse_body({end});
  take();
  return body;
}

Statement Parser::parse_statement() {
  const Position at = current().at;
  if (!this->at(TokenKind::name)) fail_unexpected("the name of a tag");
  const Token tag_token = take();
  const std::string& tag = tag_token.text;
  if (tag == "if") return {at, parse_if()};
  if (tag == "for") return {at, parse_for()};
  if (tag == "set") {
    return std::visit([&](auto&& set) { return Statement{at, std::move(set)}; }, parse_set());
  }
  if (tag == "with") return {at, parse_with()};
  if (tag == "macro") return {at, parse_macro()};
  if (tag == "call") return {at, parse_call_block()};
  if (tag == "print") return {at, Print{parse_tuple()}};
  if (tag == "do") return {at, Do{parse_tuple()}};
  if (tag == "generation") return {at, Scoped{parse_block("endgeneration")}};
  if (tag == "filter") {
    ExpressionPtr filter = parse_filter(nullptr, true);
    return {at, FilterBlock{std::move(filter), parse_block("endfilter")}};
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) fail_at(at, "'{}' outside of a loop", tag);
    if (tag == "break") return {at, Break{}};
    return {at, Continue{}};
  }
  if (std::find(kRefusedTags.begin(), kRefusedTags.end(), tag) != kRefusedTags.end()) {
    throw Failure{
        ErrorCode::unsupported,
        fmt::format("the tag '{}' isn't supported: a chat template is one file without inheritance", tag),
        at};
  }
  fail_at(at, "Encountered unknown tag '{}'", tag);
}

If Parser::parse_if() {
  If statement;
  while (true) {
    ExpressionPtr test = parse_tuple({.with_conditional = false});
    skip_op(":");
    expect(TokenKind::block_end);
    statement.branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
    const std::string end = take().text;
    if (end == "endif") return statement;
    if (end == "else") {
      statement.otherwise = parse_block("endif");
      return statement;
    }
  }
}

For Parser::parse_for() {
  For loop;
  loop.target = parse_target(false, "in");
  if (!skip_name("in")) fail_unexpected("'in'");
  loop.iterable = parse_tuple({.with_conditional = false, .end_name = "recursive"});
  if (skip_name("if")) loop.condition = parse_expression();
  loop.recursive = skip_name("recursive");
  skip_op(":");
  expect(TokenKind::block_end);
  ++loops_;
  loop.body = parse_body({"else", "endfor"});
  --loops_;
  if (take().text == "else") loop.otherwise = parse_block("endfor");
  return loop;
}

std::variant<Set, SetBlock> Parser::parse_set() {
  Target target = parse_target(true, "");
  if (skip_op("=")) return Set{std::move(target), parse_tuple()};
  ExpressionPtr filter = parse_filter(nullptr);
  return SetBlock{std::move(target), std::move(filter), parse_block("endset")};
}

With Parser::parse_with() {
  With with;
  while (!at(TokenKind::block_end) && !current().is_op(":")) {
    if (!with.values.empty()) expect_op(",");
    Target target = parse_single_target();
    expect_op("=");
    with.values.emplace_back(std::move(target), parse_expression());
  }
  with.body = parse_block("endwith");
  return with;
}

MacroDefinition Parser::parse_macro() {
  MacroDefinition macro;
  macro.name = expect_name();
  parse_parameters(macro);
  macro.body = parse_macro_body(macro, "endmacro");
  return macro;
}

CallBlock Parser::parse_call_block() {
  CallBlock block;
  block.caller.name = "caller";
  if (current().is_op("(")) parse_parameters(block.caller);
  const Position at = current().at;
  block.call = parse_expression();
  if (!std::holds_alternative<CallOf>(block.call->node)) fail_at(at, "expected call");
  block.caller.body = parse_macro_body(block.caller, "endcall");
  return block;
}

void Parser::parse_parameters(MacroDefinition& macro) {
  expect_op("(");
  for (bool first = true; !current().is_op(")"); first = false) {
    if (!first) expect_op(",");
    const Position at = current().at;
    Parameter parameter{expect_name(), nullptr};
    if (skip_op("=")) {
      parameter.fallback = parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      fail_at(at, "non-default argument follows default argument");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  expect_op(")");
}

Body Parser::parse_macro_body(MacroDefinition& macro, std::string_view end) {
  macros_.push_back(&macro);
  const int loops = std::exchange(loops_, 0);  // a macro's body is in no loop, wherever it stands
  Body body = parse_block(end);
  loops_ = loops;
  macros_.pop_back();
  return body;
}

Target Parser::parse_target(bool with_namespace, std::string_view end_name) {
  const Position at = current().at;
  if (with_namespace && look().is_op(".")) {
    Target target;
    target.at = at;
    target.name = expect_name();
    take();
    target.attribute = expect_name();
    return target;
  }
  Target first = parse_single_target();
  if (!current().is_op(",")) return first;
  Target tuple;
  tuple.at = at;
  tuple.is_tuple = true;
  tuple.items.push_back(std::move(first));
  while (skip_op(",")) {
    const bool ended = this->at(TokenKind::block_end) || current().is_op(")") || current().is_op("=") ||
                       (!end_name.empty() && current().is_name(end_name));
    if (ended) break;
    tuple.items.push_back(parse_single_target());
  }
  return tuple;
}

Target Parser::parse_single_target() {
  static constexpr std::array<std::string_view, 6> kConstants = {"true",  "True", "false",
                                                                 "False", "none", "None"};
  const Nested nested(*this);
  if (skip_op("(")) {
    Target target = parse_target(false, "");
    expect_op(")");
    return target;
  }
  Target target;
  target.at = current().at;
  target.name = expect_name();
  if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end()) {
    fail_at(target.at, "can't assign to '{}'", target.name);
  }
  return target;
}

}  // namespace kv8::text::jinja
