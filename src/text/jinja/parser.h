// From tokens to the syntax tree, by recursive descent; the grammar is Jinja2's. Throws Failure.
#pragma once

#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace kv8::text::jinja {

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body parse();

 private:
  // One level of the grammar's recursion, refused when a template nests too deeply.
  class Nested {
   public:
    explicit Nested(Parser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at(TokenKind kind) const { return current().kind == kind; }
  Token take();
  bool skip_op(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view symbol);
  void expect(TokenKind kind);
  std::string expect_name();
  [[noreturn]] void fail_unexpected(std::string_view expected) const;

  // Statements (parser_statements.cc).
  Body parse_body(std::vector<std::string_view> ends);  // stops before the tag that ends it
  Body parse_block(
      std::string_view end);  // from the end of the opening tag to behind the name of the closing
  Statement parse_statement();
  If parse_if();
  For parse_for();
  std::variant<Set, SetBlock> parse_set();
  With parse_with();
  MacroDefinition parse_macro();
  CallBlock parse_call_block();
  void parse_parameters(MacroDefinition& macro);
  Body parse_macro_body(MacroDefinition& macro, std::string_view end);
  Target parse_target(bool with_namespace, std::string_view end_name);
  Target parse_single_target();

  // Expressions (parser_expressions.cc).
  ExpressionPtr parse_expression();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_integer();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr value);
  ExpressionPtr parse_dot(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_filter(ExpressionPtr input, bool first_without_pipe = false);
  ExpressionPtr parse_test(ExpressionPtr input);
  CallArguments parse_arguments();
  std::string parse_dotted_name();
  struct TupleRules {
    bool with_conditional = true;
    bool parentheses = false;        // may be empty
    std::string_view end_name = "";  // a name that ends it
  };
  ExpressionPtr parse_tuple(const TupleRules& rules);
  ExpressionPtr parse_tuple() { return parse_tuple(TupleRules{}); }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;                         // around the current tag, within its macro
  std::vector<MacroDefinition*> macros_;  // around the current tag
};

}  // namespace kv8::text::jinja
