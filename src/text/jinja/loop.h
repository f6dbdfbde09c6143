// The variable `loop` of a for statement, which also drives it. Items that a condition leaves out are skipped
// when their turn comes, not before: the condition may depend on what the body does.
#pragma once

#include <functional>
#include <optional>

#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace kv8::text::jinja {

class Loop : public Object {
 public:
  using Condition = std::function<bool(const Value& item)>;
  using Recursion = std::function<Value(const Value& iterable, int64_t depth)>;

  // condition and recursion may be empty.
  Loop(const Value& iterable, Condition condition, Recursion recursion, int64_t depth);

  bool advance();
  const Value& item() const { return *current_; }

  // Lets go of what the loop remembers, which can hold the loop itself.
  class Ending {
   public:
    explicit Ending(Loop& loop) : loop_(loop) {}
    ~Ending() { loop_.last_changed_.reset(); }
    Ending(const Ending&) = delete;
    Ending& operator=(const Ending&) = delete;

   private:
    Loop& loop_;
  };

  // The functions behind loop.cycle and loop.changed.
  Value cycle(const Arguments& arguments) const;
  bool changed(const Arguments& arguments);

  std::string type_name() const override { return "LoopContext"; }
  std::string repr() const override;
  std::optional<Value> attribute(std::string_view name) override;
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override;
  std::optional<int64_t> length() const override { return count(); }

 private:
  std::optional<Value> pull();
  const std::optional<Value>& peek();
  int64_t count() const;

  // length() is const for all objects, but walks a loop's remaining items when they're filtered.
  mutable Iterator iterator_;
  mutable Condition condition_;
  Recursion recursion_;
  int64_t depth_;
  mutable std::optional<int64_t> length_;
  int64_t index_ = -1;
  std::optional<Value> previous_;
  std::optional<Value> current_;
  std::optional<Value> next_;
  std::optional<Value> last_changed_;
};

}  // namespace kv8::text::jinja
