// The syntax tree of a template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/failure.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace kv8::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;
using Expressions = std::vector<ExpressionPtr>;

struct CallArguments {
  Expressions positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keyword;
  ExpressionPtr star;         // *list, or nullptr
  ExpressionPtr double_star;  // **dict, or nullptr
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct ListLiteral {
  Expressions items;
};
struct TupleLiteral {
  Expressions items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Logical {  // and, or: the value is one of the operands
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Concatenation {
  Expressions items;
};
struct ComparisonChain {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;  // nullptr without else
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object;
  ExpressionPtr index;
};
struct SliceOf {
  ExpressionPtr object;
  ExpressionPtr start;  // each nullptr if left out
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct CallOf {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct FilterOf {
  ExpressionPtr input;  // nullptr in a filter block: its text
  std::string name;
  CallArguments arguments;
};
struct TestOf {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
  bool negated;
};

struct Expression {
  Position at;
  int depth = 1;  // of the tree below, this node included
  std::variant<Constant, Name, ListLiteral, TupleLiteral, DictLiteral, Unary, Binary, Logical, Concatenation,
               ComparisonChain, Conditional, Attribute, Subscript, SliceOf, CallOf, FilterOf, TestOf>
      node;
};

// What an assignment assigns to: a name, an attribute of a namespace, or a list of targets to unpack into.
struct Target {
  Position at;
  std::string name;
  std::string attribute;      // "" if it isn't namespace.attribute
  std::vector<Target> items;  // of a tuple
  bool is_tuple = false;
};

struct Statement;
using Body = std::vector<Statement>;

struct Text {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // nullptr without `if`
  bool recursive;
  Body body;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // nullptr, or a chain whose innermost input is nullptr
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // nullptr without one
};
struct MacroDefinition {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_varargs = false;  // the body mentions them, so the macro takes them
  bool uses_kwargs = false;
  bool uses_caller = false;
};
struct CallBlock {
  MacroDefinition caller;
  ExpressionPtr call;  // a CallOf
};
struct Do {
  ExpressionPtr value;
};
struct Scoped {  // {% generation %}: its text, in a scope of its own
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  Position at;
  std::variant<Text, Print, If, For, Set, SetBlock, With, FilterBlock, MacroDefinition, CallBlock, Do, Scoped,
               Break, Continue>
      node;
};

}  // namespace kv8::text::jinja
