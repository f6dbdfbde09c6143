#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/failure.h"
#include "text/jinja/python_text.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;

// dict.items() and its like: a list in all but name.
class DictView : public Object {
 public:
  DictView(std::string_view name, std::vector<Value> items)
      : Object(depth_of(items)),
        name_(name),
        items_(std::move(items)),
        charge_(items_.size() * sizeof(Value)) {
    spend_copies(items_.size());
  }
  std::string type_name() const override { return name_; }
  std::string repr() const override { return fmt::format("{}({})", name_, jinja::repr(Value::list(items_))); }
  const std::vector<Value>* items() const override { return &items_; }
  bool equals(const Object& other) const override {  // dict_keys and dict_items are sets
    if (this == &other) return true;
    const auto* view = dynamic_cast<const DictView*>(&other);
    if (view == nullptr || name_ == "dict_values" || view->name_ == "dict_values") return false;
    return items_.size() == view->items_.size() &&
           std::all_of(items_.begin(), items_.end(), [&](const Value& item) {
             return std::any_of(view->items_.begin(), view->items_.end(),
                                [&](const Value& candidate) { return equal(candidate, item); });
           });
  }

 private:
  std::string name_;
  std::vector<Value> items_;
  Charge charge_;
};

Value view(std::string_view name, std::vector<Value> items) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<DictView>(name, std::move(items))));
}

Value dict_items(Interpreter&, const Value& self, Call) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().pairs()) items.push_back(Value::tuple({key, value}));
  return view("dict_items", std::move(items));
}

Value dict_keys(Interpreter&, const Value& self, Call) {
  std::vector<Value> items;
  for (const auto& pair : self.dict().pairs()) items.push_back(pair.first);
  return view("dict_keys", std::move(items));
}

Value dict_values(Interpreter&, const Value& self, Call) {
  std::vector<Value> items;
  for (const auto& pair : self.dict().pairs()) items.push_back(pair.second);
  return view("dict_values", std::move(items));
}

constexpr Native kDictMethods[] = {
    {"copy", "", [](Interpreter&, const Value& self, Call) { return self; }},
    {"get", "key default?",
     [](Interpreter&, const Value& self, Call arguments) {
       const Value* value = self.dict().find(arguments[0]);
       return value != nullptr ? *value : arguments.value_or(1, Value());
     }},
    {"items", "", dict_items},
    {"keys", "", dict_keys},
    {"values", "", dict_values},
};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault", "update"};

Value sequence_count(Interpreter&, const Value& self, Call arguments) {
  const auto& items = self.sequence().items;
  return Value(static_cast<int64_t>(std::count_if(
      items.begin(), items.end(), [&](const Value& item) { return equal(item, arguments[0]); })));
}

Value sequence_index(Interpreter&, const Value& self, Call arguments) {
  const auto& items = self.sequence().items;
  const auto size = static_cast<int64_t>(items.size());
  const auto bound = [&](size_t at, int64_t fallback) {
    const int64_t value = arguments.integer(at, fallback);
    return std::clamp<int64_t>(value < 0 ? value + size : value, 0, size);
  };
  const int64_t stop = bound(2, size);
  for (int64_t i = bound(1, 0); i < stop; ++i) {
    if (equal(items[static_cast<size_t>(i)], arguments[0])) return Value(i);
  }
  fail("{} is not in {}", repr(arguments[0]), type_name(self));
}

// Jinja2's sandbox lets a template shorten a list, of all things.
Value list_pop(Interpreter&, const Value& self, Call arguments) {
  auto& items = self.sequence().items;
  if (items.empty()) fail("pop from empty list");
  const auto size = static_cast<int64_t>(items.size());
  const int64_t index = arguments.integer(0, -1);
  const int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) fail("pop index out of range");
  Value value = items[static_cast<size_t>(at)];
  spend_copies(static_cast<size_t>(size - at));
  items.erase(items.begin() + at);
  return value;
}

constexpr Native kListMethods[] = {
    {"clear", "",
     [](Interpreter&, const Value& self, Call) {
       self.sequence().items.clear();
       return Value();
     }},
    {"copy", "", [](Interpreter&, const Value& self, Call) { return Value::list(self.sequence().items); }},
    {"count", "value", sequence_count},
    {"index", "value start? stop?", sequence_index},
    {"pop", "index?", list_pop},
};
constexpr std::array<std::string_view, 6> kListMutators = {"append", "reverse", "insert",
                                                           "sort",   "extend",  "remove"};

constexpr Native kTupleMethods[] = {
    {"count", "value", sequence_count},
    {"index", "value start? stop?", sequence_index},
};

constexpr Native kFloatMethods[] = {
    {"is_integer", "",
     [](Interpreter&, const Value& self, Call) { return Value(std::floor(self.number()) == self.number()); }},
};

std::span<const std::string_view> mutators_of(Value::Kind kind) {
  if (kind == Value::Kind::list) return kListMutators;
  if (kind == Value::Kind::dict) return kDictMutators;
  return {};
}

}  // namespace

std::span<const Native> methods_of(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::string:
      return string_methods();
    case Value::Kind::list:
      return kListMethods;
    case Value::Kind::tuple:
      return kTupleMethods;
    case Value::Kind::dict:
      return kDictMethods;
    case Value::Kind::floating:
      return kFloatMethods;
    default:
      return {};
  }
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  if (const Native* native = find_native(methods_of(object.kind()), name)) {
    return Value(std::static_pointer_cast<Object>(std::make_shared<NativeObject>(*native, object)));
  }
  const auto mutators = mutators_of(object.kind());
  if (std::find(mutators.begin(), mutators.end(), name) != mutators.end()) {
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  }
  return std::nullopt;
}

}  // namespace kv8::text::jinja
