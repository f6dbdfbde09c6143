#include <algorithm>
#include <unordered_map>

#include "text/jinja/failure.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/text_functions.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;
using Kind = Value::Kind;
using Getter = std::function<Value(const Value&)>;

Value ignore_case(const Value& value) {
  return value.is_string() ? Value(to_lower(value.string())) : value;
}

// What items are compared by: an attribute of theirs, without regard to case unless asked for.
Getter sort_key(const Value& attribute, bool case_sensitive, const Value& fallback = Value()) {
  auto getter = attribute_getter(attribute, fallback);
  if (case_sensitive) return getter;
  return [getter = std::move(getter)](const Value& item) { return ignore_case(getter(item)); };
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> sorted(const Value& values, const Getter& key, bool reverse = false) {
  std::vector<Keyed> keyed;
  for (Value& item : to_vector(values)) {
    Value item_key = key(item);
    keyed.push_back({std::move(item_key), std::move(item)});
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(b.key, a.key) : less(a.key, b.key);
  });
  return keyed;
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Value sort(Interpreter&, const Value& self, Call arguments) {
  const Value attribute = arguments.value_or(2, Value());
  const bool case_sensitive = arguments.flag(1, false);
  std::vector<Getter> getters;
  if (attribute.is_string()) {  // "a,b": by a, then by b
    for (const std::string& part : split(attribute.string(), ",", -1))
      getters.push_back(sort_key(Value(part), case_sensitive));
  } else {
    getters.push_back(sort_key(attribute, case_sensitive));
  }
  const Getter key = [&](const Value& item) {
    std::vector<Value> keys;
    keys.reserve(getters.size());
    for (const Getter& getter : getters) keys.push_back(getter(item));
    return Value::list(std::move(keys));
  };
  return Value::list(items_of(sorted(self, key, arguments.flag(0, false))));
}

Value dict_sort(Interpreter&, const Value& self, Call arguments) {
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is_dict()) fail("dictsort expects a mapping, not {}", type_name(self));
  const std::string by = arguments.text(1, "key");
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> items;
  items.reserve(self.dict().pairs().size());
  for (const auto& [key, value] : self.dict().pairs()) items.push_back(Value::tuple({key, value}));
  const Getter key = sort_key(Value(int64_t{by == "value"}), arguments.flag(0, false));
  return Value::list(items_of(sorted(Value::list(std::move(items)), key, arguments.flag(2, false))));
}

Value group_by(Interpreter&, const Value& self, Call arguments) {
  const Value fallback = arguments.value_or(1, Value());
  const Getter real_key = attribute_getter(arguments[0], fallback);
  std::vector<Value> groups;
  std::vector<Value> members;
  const auto finish = [&] {
    if (members.empty()) return;
    Value key = real_key(members[0]);
    auto group =
        std::make_shared<Tuple>(std::vector<Value>{std::move(key), Value::list(std::exchange(members, {}))});
    group->is_group = true;
    groups.emplace_back(std::move(group));
  };
  std::optional<Value> current;
  for (Keyed& entry : sorted(self, sort_key(arguments[0], arguments.flag(2, false), fallback))) {
    if (current && !equal(*current, entry.key)) finish();
    current = entry.key;
    members.push_back(std::move(entry.item));
  }
  finish();
  return Value::list(std::move(groups));
}

Value unique(Interpreter&, const Value& self, Call arguments) {
  const Getter key = sort_key(arguments.value_or(1, Value()), arguments.flag(0, false));
  std::unordered_multimap<size_t, Value> seen;
  std::vector<Value> items;
  for (Value& item : to_vector(self)) {
    Value item_key = key(item);
    const size_t hash = hash_of(item_key);
    const auto [begin, end] = seen.equal_range(hash);
    if (std::any_of(begin, end, [&](const auto& entry) { return equal(entry.second, item_key); })) continue;
    seen.emplace(hash, std::move(item_key));
    items.push_back(std::move(item));
  }
  return Value::generator(std::move(items));
}

template <bool largest>
Value extreme(Interpreter&, const Value& self, Call arguments) {
  const Getter key = sort_key(arguments.value_or(1, Value()), arguments.flag(0, false));
  std::optional<Keyed> best;
  for (Value& item : to_vector(self)) {
    Keyed entry{key(item), item};
    if (!best || (largest ? less(best->key, entry.key) : less(entry.key, best->key))) best = std::move(entry);
  }
  return best ? best->item : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Interpreter&, const Value& self, Call arguments) {
  const Getter getter = attribute_getter(arguments.value_or(0, Value()));
  Value total = arguments.value_or(1, Value(int64_t{0}));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : to_vector(self)) total = apply(BinaryOperator::add, total, getter(item));
  return total;
}

Value join_filter(Interpreter&, const Value& self, Call arguments) {
  const std::string separator = arguments.has(0) ? to_text(arguments[0]) : "";
  const Getter getter = attribute_getter(arguments.value_or(1, Value()));
  std::string text;
  Iterator iterator(self);
  for (bool first = true; const auto item = iterator.next(); first = false) {
    if (!first) text += separator;
    text += to_text(getter(*item));
    check_fits(text.size());
  }
  return Value(std::move(text));
}

// A value of None or another that is false has no items for map and select.
std::vector<Value> items_or_none(const Value& self) {
  return truth(self) ? to_vector(self) : std::vector<Value>{};
}

Value map(Interpreter& interpreter, const Value& self, Call arguments) {
  const Arguments& all = arguments.all();
  std::vector<Value> items = items_or_none(self);
  if (items.empty()) return Value::generator({});
  const Value* attribute = all.find("attribute");
  if (all.positional.empty() && attribute != nullptr) {
    const Value* fallback = all.find("default");
    if (all.keyword.size() > (fallback == nullptr ? 1 : 2)) fail("map() got an unexpected keyword argument");
    const Getter getter = attribute_getter(*attribute, fallback == nullptr ? Value() : *fallback);
    for (Value& item : items) item = getter(item);
    return Value::generator(std::move(items));
  }
  if (all.positional.empty()) fail("map requires a filter argument");
  const std::string name = to_text(all.positional[0]);
  const Arguments rest{{all.positional.begin() + 1, all.positional.end()}, all.keyword};
  for (Value& item : items) item = interpreter.apply_filter(name, item, rest);
  return Value::generator(std::move(items));
}

template <bool wanted, bool by_attribute>
Value select(Interpreter& interpreter, const Value& self, Call arguments) {
  const Arguments& all = arguments.all();
  std::vector<Value> items = items_or_none(self);
  if (items.empty()) return Value::generator({});
  const size_t offset = by_attribute ? 1 : 0;
  if (all.positional.size() < offset) fail("Missing parameter for attribute name");
  const Getter getter = attribute_getter(by_attribute ? all.positional[0] : Value());
  const bool has_test = all.positional.size() > offset;
  const std::string name = has_test ? to_text(all.positional[offset]) : "";
  Arguments rest{{}, all.keyword};
  if (has_test)
    rest.positional.assign(all.positional.begin() + static_cast<std::ptrdiff_t>(offset) + 1,
                           all.positional.end());
  std::vector<Value> chosen;
  for (Value& item : items) {
    const Value value = getter(item);
    if ((has_test ? interpreter.apply_test(name, value, rest) : truth(value)) == wanted)
      chosen.push_back(std::move(item));
  }
  return Value::generator(std::move(chosen));
}

Value batch(Interpreter&, const Value& self, Call arguments) {
  const int64_t size = arguments.integer(0);
  const Value fill = arguments.value_or(1, Value());
  std::vector<Value> batches;
  std::vector<Value> current;
  for (Value& item : to_vector(self)) {
    if (static_cast<int64_t>(current.size()) == size)
      batches.push_back(Value::list(std::exchange(current, {})));
    current.push_back(std::move(item));
  }
  if (!current.empty()) {
    if (!fill.is_none() && static_cast<int64_t>(current.size()) < size) {
      checked_size(static_cast<size_t>(size), sizeof(Value));
      current.resize(static_cast<size_t>(size), fill);
    }
    batches.push_back(Value::list(std::move(current)));
  }
  return Value::generator(std::move(batches));
}

Value slice_filter(Interpreter&, const Value& self, Call arguments) {
  const int64_t count = arguments.integer(0);
  const Value fill = arguments.value_or(1, Value());
  const auto items = to_vector(self);
  if (count == 0) fail("integer division or modulo by zero");
  if (count < 0) return Value::generator({});
  checked_size(static_cast<size_t>(count), sizeof(List));
  const auto length = static_cast<int64_t>(items.size());
  std::vector<Value> slices;
  int64_t start = 0;
  for (int64_t i = 0; i < count; ++i) {
    const bool longer = i < length % count;
    const int64_t end = start + length / count + (longer ? 1 : 0);
    std::vector<Value> part(items.begin() + start, items.begin() + end);
    if (!fill.is_none() && !longer) part.push_back(fill);
    slices.push_back(Value::list(std::move(part)));
    start = end;
  }
  return Value::generator(std::move(slices));
}

Value first(Interpreter&, const Value& self, Call) {
  auto item = Iterator(self).next();
  return item ? std::move(*item) : Value::undefined("No first item, sequence was empty.");
}

Value last(Interpreter&, const Value& self, Call) {
  if (self.kind() == Kind::generator) fail("'generator' object is not reversible");
  auto items = to_vector(self);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : std::move(items.back());
}

Value length(Interpreter&, const Value& self, Call) {
  const auto count = length_of(self);
  if (!count) fail("object of type '{}' has no len()", type_name(self));
  return Value(*count);
}

Value reverse(Interpreter&, const Value& self, Call) {
  if (self.is_string()) {
    std::u32string text = decode(self.string());
    std::reverse(text.begin(), text.end());
    return Value(encode(text));
  }
  auto items = to_vector(self);
  std::reverse(items.begin(), items.end());
  return self.kind() == Kind::generator ? Value::list(std::move(items)) : Value::generator(std::move(items));
}

Value items(Interpreter&, const Value& self, Call) {
  if (self.is_undefined()) return Value::generator({});
  if (!self.is_dict()) fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().pairs()) pairs.push_back(Value::tuple({key, value}));
  return Value::generator(std::move(pairs));
}

Value random(Interpreter&, const Value&, Call) {
  refuse("the filter random isn't supported: a prompt must be the same every time");
}

constexpr Native kSequenceFilters[] = {
    {"batch", "linecount fill_with?", batch},
    {"count", "", length},
    {"dictsort", "case_sensitive? by? reverse?", dict_sort},
    {"first", "", first},
    {"groupby", "attribute default? case_sensitive?", group_by},
    {"items", "", items},
    {"join", "d? attribute?", join_filter},
    {"last", "", last},
    {"length", "", length},
    {"list", "", [](Interpreter&, const Value& self, Call) { return Value::list(to_vector(self)); }},
    {"map", "*", map},
    {"max", "case_sensitive? attribute?", extreme<true>},
    {"min", "case_sensitive? attribute?", extreme<false>},
    {"random", "", random},
    {"reject", "*", select<false, false>},
    {"rejectattr", "*", select<false, true>},
    {"reverse", "", reverse},
    {"select", "*", select<true, false>},
    {"selectattr", "*", select<true, true>},
    {"slice", "slices fill_with?", slice_filter},
    {"sort", "reverse? case_sensitive? attribute?", sort},
    {"sum", "attribute? start?", sum},
    {"unique", "case_sensitive? attribute?", unique},
};

}  // namespace

std::span<const Native> sequence_filters() {
  return kSequenceFilters;
}

}  // namespace kv8::text::jinja
