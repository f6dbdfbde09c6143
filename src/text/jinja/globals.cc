#include "text/jinja/globals.h"

#include <ctime>

#include "text/jinja/failure.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;

constexpr int64_t kMaxRange = 100000;  // as in Jinja2's sandbox

template <class T, class... Args>
Value make_object(Args&&... args) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<T>(std::forward<Args>(args)...)));
}

// cycler(a, b, ...): next() goes round.
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items)
      : Object(depth_of(items)), items_(std::move(items)), charge_(items_.size() * sizeof(Value)) {
    spend_copies(items_.size());
  }
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name) override;
  Value next() {
    Value value = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return value;
  }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
  Charge charge_;
};

constexpr Native kCyclerNext = {
    "next", "", [](Interpreter&, const Value& self, Call) { return self.as_object<Cycler>()->next(); }};
constexpr Native kCyclerReset = {"reset", "", [](Interpreter&, const Value& self, Call) {
                                   self.as_object<Cycler>()->reset();
                                   return Value();
                                 }};

std::optional<Value> Cycler::attribute(std::string_view name) {
  if (name == "current") return items_[at_];
  const Native* function = name == "next" ? &kCyclerNext : name == "reset" ? &kCyclerReset : nullptr;
  if (function == nullptr) return std::nullopt;
  return make_object<NativeObject>(*function, Value(shared_from_this()));
}

// joiner(separator): nothing at the first call, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : Object(depth_of({separator})), separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, const Arguments& arguments) override {
    const Bound none("joiner", "", arguments);
    if (used_) return separator_;
    used_ = true;
    return Value("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_range(Interpreter&, const Value&, Call arguments) {
  Range range{0, arguments.integer(0), 1};
  if (arguments.has(1)) range = {range.stop, arguments.integer(1), arguments.integer(2, 1)};
  if (range.step == 0) fail("range() arg 3 must not be zero");
  if (range.size() > kMaxRange || range.size() < 0) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange);
  }
  return Value(range);
}

// What dict(mapping, key=value, ...) takes.
std::vector<std::pair<Value, Value>> pairs_of(Call arguments) {
  std::vector<std::pair<Value, Value>> pairs;
  const Arguments& all = arguments.all();
  if (all.positional.size() > 1) fail("{}() takes at most 1 positional argument", arguments.function());
  if (!all.positional.empty() && all.positional[0].is_dict()) {
    pairs = all.positional[0].dict().pairs();
  } else if (!all.positional.empty()) {
    Iterator iterator(all.positional[0]);
    while (const auto item = iterator.next()) {
      auto pair = to_vector(*item);
      if (pair.size() != 2)
        fail("dictionary update sequence element has length {}; 2 is required", pair.size());
      pairs.emplace_back(std::move(pair[0]), std::move(pair[1]));
    }
  }
  for (const auto& [name, value] : all.keyword) pairs.emplace_back(Value(name), value);
  return pairs;
}

Value make_dict(Interpreter&, const Value&, Call arguments) {
  return Value::dict(pairs_of(arguments));
}

Value make_namespace(Interpreter& interpreter, const Value&, Call arguments) {
  const auto space = interpreter.make_namespace();
  const Value attributes = Value::dict(pairs_of(arguments));
  for (const auto& [name, value] : attributes.dict().pairs()) {
    if (name.is_string()) space->set(name.string(), value);
  }
  return Value(std::static_pointer_cast<Object>(space));
}

Value make_cycler(Interpreter&, const Value&, Call arguments) {
  const Arguments& all = arguments.all();
  if (all.positional.empty() || !all.keyword.empty()) fail("at least one item has to be provided");
  return make_object<Cycler>(all.positional);
}

Value make_joiner(Interpreter&, const Value&, Call arguments) {
  return make_object<Joiner>(arguments.value_or(0, Value(", ")));
}

Value raise_exception(Interpreter&, const Value&, Call arguments) {
  refuse_request(to_text(arguments[0]));
}

std::tm local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

Value strftime_now(Interpreter& interpreter, const Value&, Call arguments) {
  const std::string format = arguments.text(0);
  const std::tm now = interpreter.hooks().clock ? interpreter.hooks().clock() : local_now();
  if (format.empty()) return Value("");
  char buffer[1024];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &now);
  if (size == 0) fail("strftime_now() can't write a date as {}", repr(std::string_view(format)));
  return Value(std::string(buffer, size));
}

constexpr Native kGlobals[] = {
    {"range", "start stop? step?", make_range},
    {"dict", "*", make_dict},
    {"namespace", "*", make_namespace},
    {"cycler", "*", make_cycler},
    {"joiner", "sep?", make_joiner},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

std::span<const Native> all_globals() {
  return kGlobals;
}

const Native* find_global(std::string_view name) {
  return find_native(kGlobals, name);
}

std::string Namespace::repr() const {
  const Level level(*Budget::current());  // a namespace can hold itself
  std::string text = "<Namespace {";
  for (const auto& [name, value] : attributes_.all()) {
    if (text.back() != '{') text += ", ";
    text += fmt::format("{}: {}", jinja::repr(std::string_view(name)), jinja::repr(value));
    check_fits(text.size());
  }
  return text + "}>";
}

std::optional<Value> Namespace::attribute(std::string_view name) {
  const Value* value = attributes_.find(name);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

}  // namespace kv8::text::jinja
