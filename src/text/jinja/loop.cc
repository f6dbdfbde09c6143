#include "text/jinja/loop.h"

#include "text/jinja/failure.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

namespace {

Loop& loop_of(const Value& self) {
  return *self.as_object<Loop>();
}

constexpr Native kCycle = {"cycle", "*", [](Interpreter&, const Value& self, const Bound& arguments) {
                             return loop_of(self).cycle(arguments.all());
                           }};
constexpr Native kChanged = {"changed", "*", [](Interpreter&, const Value& self, const Bound& arguments) {
                               return Value(loop_of(self).changed(arguments.all()));
                             }};

}  // namespace

Loop::Loop(const Value& iterable, Condition condition, Recursion recursion, int64_t depth)
    : Object(depth_of({iterable})),
      iterator_(iterable),
      condition_(std::move(condition)),
      recursion_(std::move(recursion)),
      depth_(depth) {
  if (!condition_) length_ = length_of(iterable);
}

std::optional<Value> Loop::pull() {
  while (auto item = iterator_.next()) {
    if (!condition_ || condition_(*item)) return item;
  }
  return std::nullopt;
}

const std::optional<Value>& Loop::peek() {
  if (!next_) next_ = pull();
  return next_;
}

bool Loop::advance() {
  auto item = next_ ? std::exchange(next_, std::nullopt) : pull();
  if (!item) return false;
  ++index_;
  previous_ = std::exchange(current_, std::move(item));
  return true;
}

// Without a length to ask for, the rest of the items is walked now and kept for the iterations to come.
int64_t Loop::count() const {
  if (length_) return *length_;
  std::vector<Value> rest;
  while (auto item = iterator_.next()) {
    if (!condition_ || condition_(*item)) rest.push_back(std::move(*item));
  }
  length_ = static_cast<int64_t>(rest.size()) + index_ + 1 + (next_ ? 1 : 0);
  iterator_ = Iterator(Value::generator(std::move(rest)));
  condition_ = nullptr;
  return *length_;
}

std::string Loop::repr() const {
  return fmt::format("<LoopContext {}/{}>", index_ + 1, count());
}

std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!peek().has_value());
  if (name == "length") return Value(count());
  if (name == "revindex") return Value(count() - index_);
  if (name == "revindex0") return Value(count() - index_ - 1);
  if (name == "depth") return Value(depth_ + 1);
  if (name == "depth0") return Value(depth_);
  if (name == "previtem")
    return index_ > 0 && previous_ ? *previous_ : Value::undefined("there is no previous item");
  if (name == "nextitem") return peek() ? *next_ : Value::undefined("there is no next item");
  const Native* function = name == "cycle" ? &kCycle : name == "changed" ? &kChanged : nullptr;
  if (function == nullptr) return std::nullopt;
  return Value(
      std::static_pointer_cast<Object>(std::make_shared<NativeObject>(*function, Value(shared_from_this()))));
}

Value Loop::call(Interpreter&, const Arguments& arguments) {
  if (!recursion_) fail("The loop must have the 'recursive' marker to be called recursively.");
  return recursion_(Bound("loop", "iterable", arguments)[0], depth_ + 1);
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[static_cast<size_t>(index_) % arguments.positional.size()];
}

bool Loop::changed(const Arguments& arguments) {
  Value value = Value::tuple(arguments.positional);
  if (last_changed_ && equal(*last_changed_, value)) return false;
  last_changed_ = std::move(value);
  return true;
}

}  // namespace kv8::text::jinja
