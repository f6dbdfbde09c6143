// Calls of functions written in C++: filters, tests, methods and globals are rows of tables of Native, each
// with the names of its parameters, so that positional and keyword arguments bind in one place.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace kv8::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;

  const Value* find(std::string_view name) const;  // a keyword argument
};

class Bound {
 public:
  // parameters: "old new count?", names in their order, ? for one that may be left out; "*" takes anything.
  Bound(std::string_view function, std::string_view parameters, const Arguments& arguments);

  bool has(size_t index) const { return index < values_.size() && values_[index].has_value(); }
  const Value& operator[](size_t index) const { return *values_[index]; }  // only if has(index)
  const Value& value_or(size_t index, const Value& fallback) const {
    return has(index) ? *values_[index] : fallback;
  }
  // Fail if the argument is of another type.
  int64_t integer(size_t index, std::optional<int64_t> fallback = std::nullopt) const;
  std::string text(size_t index, std::optional<std::string> fallback = std::nullopt) const;
  std::optional<std::string> optional_text(size_t index) const;  // nullopt if left out or None
  bool flag(size_t index, bool fallback) const;                  // by truth
  const Arguments& all() const { return arguments_; }
  std::string_view function() const { return function_; }

 private:
  std::string_view function_;
  const Arguments& arguments_;
  std::vector<std::optional<Value>> values_;
};

// self is what a filter or test is applied to, or the object of a method; None for a function.
using NativeFunction = Value (*)(Interpreter& interpreter, const Value& self, const Bound& arguments);

struct Native {
  std::string_view name;
  std::string_view parameters;
  NativeFunction function;

  Value operator()(Interpreter& interpreter, const Value& self, const Arguments& arguments) const {
    return function(interpreter, self, Bound(name, parameters, arguments));
  }
};

const Native* find_native(std::span<const Native> table, std::string_view name);  // nullptr if it isn't there

// A method with its object, or a global function.
class NativeObject : public Object {
 public:
  NativeObject(const Native& native, Value self)
      : Object(self.depth() + 1), native_(native), self_(std::move(self)) {
    depth_of({self_});
  }
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return native_(interpreter, self_, arguments);
  }
  bool equals(const Object& other) const override;

 private:
  const Native& native_;  // in a table, which lives forever
  Value self_;
};

}  // namespace kv8::text::jinja
