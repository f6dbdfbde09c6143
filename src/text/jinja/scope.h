// The variables of one scope. Scopes form a chain to the top of the template; an assignment goes to the
// innermost, so that a loop's body leaks nothing.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace kv8::text::jinja {

// A few named values in the order of their first assignment, counted by the budget.
class Variables {
 public:
  Variables() : budget_(Budget::current()) {}
  ~Variables() { clear(); }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  const Value* find(std::string_view name) const;  // nullptr if there is none
  void set(std::string_view name, Value value);
  void clear();
  const std::vector<std::pair<std::string, Value>>& all() const { return values_; }

 private:
  Budget* budget_;
  std::vector<std::pair<std::string, Value>> values_;
};

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)), charge_(sizeof(Scope)) {}

  const Value* find(std::string_view name) const;  // here or further out
  void set(std::string_view name, Value value) { variables_.set(name, std::move(value)); }
  void clear() { variables_.clear(); }

 private:
  std::shared_ptr<Scope> parent_;
  Variables variables_;
  Charge charge_;
};

}  // namespace kv8::text::jinja
