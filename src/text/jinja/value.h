// The values of a template, with the meaning they have in Python: a Value is small and cheap to copy, strings
// and containers are shared. A string is UTF-8 and counts, slices and compares by characters
// (text/jinja/utf8.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/json.h"
#include "text/jinja/budget.h"

namespace kv8::text::jinja {

class Value;
class Interpreter;
struct Arguments;

constexpr int kMaxValueDepth = 320;  // lists in lists in ...: keeps every recursion over a value short

// Making one costs a step and a pass over it; reading it, through Value::string(), another pass.
struct String {
  explicit String(std::string content) : text(std::move(content)), charge(text.size() + sizeof(String)) {
    spend_steps(1);
    spend_pass(text.size());
  }
  const std::string text;
  Charge charge;
};

// A name or attribute that isn't there. It prints as nothing and is false; most other uses fail with
// its message.
struct Undefined {
  explicit Undefined(std::string why) : message(std::move(why)) {}
  String message;
};

struct Sequence {
  explicit Sequence(std::vector<Value> values);
  std::vector<Value> items;
  int depth;
  Charge charge;
};
struct List : Sequence {
  using Sequence::Sequence;
};
struct Tuple : Sequence {
  using Sequence::Sequence;
  bool is_group = false;  // made by groupby: has .grouper and .list
};
// What lazy filters (map, select, ...) return: can be walked once, has no length and no elements to index.
struct Generator : Sequence {
  using Sequence::Sequence;
  size_t consumed = 0;
};

// In the order of insertion.
class Dict {
 public:
  explicit Dict(std::vector<std::pair<Value, Value>> pairs);

  const std::vector<std::pair<Value, Value>>& pairs() const { return pairs_; }
  const Value* find(const Value& key) const;  // fails for a key that can't be hashed
  const Value* find(std::string_view key) const;
  int depth() const { return depth_; }

 private:
  std::optional<size_t> position(const Value& key, size_t hash) const;
  void append(std::pair<Value, Value> pair, size_t hash);

  std::vector<std::pair<Value, Value>> pairs_;
  std::unordered_multimap<size_t, size_t> index_;  // hash -> position; empty for a small dict
  int depth_ = 1;
  Charge charge_;
};

struct Range {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t size() const;
  bool operator==(const Range&) const = default;
};

// Everything else: functions, macros, namespaces, the loop variable, views of a dict.
class Object : public std::enable_shared_from_this<Object> {
 public:
  explicit Object(int depth = 1) : depth_(depth), charge_(kUsualBytes) { spend_steps(1); }
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  virtual std::string type_name() const = 0;  // as in Python's messages
  virtual std::string repr() const;
  virtual std::optional<Value> attribute(std::string_view name);  // nullopt: there is none
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, const Arguments& arguments);
  // The items, for an object that can be walked (again and again) and has a length.
  virtual const std::vector<Value>* items() const { return nullptr; }
  virtual std::optional<int64_t> length() const;
  virtual bool equals(const Object& other) const { return this == &other; }
  int depth() const { return depth_; }

 private:
  static constexpr size_t kUsualBytes = 128;  // of the object itself; what it holds counts by itself
  int depth_;
  Charge charge_;
};

class Value {
 public:
  enum class Kind : uint8_t {
    none,
    undefined,
    boolean,
    integer,
    floating,
    string,
    list,
    tuple,
    dict,
    range,
    generator,
    object,
  };

  Value() = default;  // None
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string text) : data_(std::make_shared<const String>(std::move(text))) {}
  explicit Value(std::string_view text) : Value(std::string(text)) {}
  explicit Value(const char* text) : Value(std::string(text)) {}
  explicit Value(std::shared_ptr<const String> string) : data_(std::move(string)) {}
  explicit Value(std::shared_ptr<Tuple> tuple) : data_(std::move(tuple)) {}
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  explicit Value(Range range) : data_(std::make_shared<const Range>(range)) {}
  static Value undefined(std::string message);
  static Value list(std::vector<Value> items) { return Value(std::make_shared<List>(std::move(items))); }
  static Value tuple(std::vector<Value> items) { return Value(std::make_shared<Tuple>(std::move(items))); }
  static Value generator(std::vector<Value> items) {
    return Value(std::make_shared<Generator>(std::move(items)));
  }
  static Value dict(std::vector<std::pair<Value, Value>> pairs) {
    return Value(std::make_shared<const Dict>(std::move(pairs)));
  }
  static Value from_json(const OrderedJson& json, int depth = 1);  // depth: of json in what it is part of

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_none() const { return kind() == Kind::none; }
  bool is_undefined() const { return kind() == Kind::undefined; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_dict() const { return kind() == Kind::dict; }
  bool is_integer() const { return is_bool() || kind() == Kind::integer; }  // Python's bool is an int
  bool is_number() const { return is_integer() || kind() == Kind::floating; }

  // Each may be called only on a value of its kind.
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return is_bool() ? int64_t{boolean()} : std::get<int64_t>(data_); }
  double number() const { return is_integer() ? static_cast<double>(integer()) : std::get<double>(data_); }
  // Costs a pass over the text: whoever asks is going to read it. Ask once, and keep the reference.
  const std::string& string() const {
    const std::string& text = std::get<StringRef>(data_)->text;
    spend_pass(text.size());
    return text;
  }
  size_t string_bytes() const { return std::get<StringRef>(data_)->text.size(); }  // costs nothing
  const std::string& undefined_message() const { return std::get<UndefinedRef>(data_)->message.text; }
  Sequence& sequence() const;  // of a list, tuple or generator
  const std::shared_ptr<Tuple>& tuple() const { return std::get<std::shared_ptr<Tuple>>(data_); }
  Generator& generator() const { return *std::get<std::shared_ptr<Generator>>(data_); }
  const Dict& dict() const { return *std::get<DictRef>(data_); }
  const Range& range() const { return *std::get<RangeRef>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }

  template <class T>
  T* as_object() const {  // nullptr if it is none of type T
    return kind() == Kind::object ? dynamic_cast<T*>(&object()) : nullptr;
  }

  int depth() const;
  bool is_same(const Value& other) const;  // Python's `is`

 private:
  using StringRef = std::shared_ptr<const String>;
  using UndefinedRef = std::shared_ptr<const Undefined>;
  using DictRef = std::shared_ptr<const Dict>;
  using RangeRef = std::shared_ptr<const Range>;

  explicit Value(UndefinedRef undefined) : data_(std::move(undefined)) {}
  explicit Value(std::shared_ptr<List> list) : data_(std::move(list)) {}
  explicit Value(std::shared_ptr<Generator> generator) : data_(std::move(generator)) {}
  explicit Value(DictRef dict) : data_(std::move(dict)) {}

  // In the order of Kind.
  std::variant<std::monostate, UndefinedRef, bool, int64_t, double, StringRef, std::shared_ptr<List>,
               std::shared_ptr<Tuple>, DictRef, RangeRef, std::shared_ptr<Generator>, std::shared_ptr<Object>>
      data_;
};

// The values of an iterable, one after the other; fails for what can't be iterated.
class Iterator {
 public:
  explicit Iterator(Value source);
  std::optional<Value> next();

 private:
  Value source_;
  const std::string* text_ = nullptr;  // of a string
  size_t position_ = 0;                // an index; the byte offset in a string
};

std::vector<Value> to_vector(const Value& iterable);
std::optional<int64_t> length_of(const Value& value);  // Python's len(); nullopt if it has none
bool truth(const Value& value);
std::string type_name(const Value& value);             // "int", "NoneType", ...
size_t hash_of(const Value& value);                    // fails for lists and dicts
bool equal(const Value& left, const Value& right);     // ==
int depth_of(const std::vector<Value>& items);         // 1 + the deepest; fails above kMaxValueDepth
[[noreturn]] void fail_undefined(const Value& value);  // value is undefined

}  // namespace kv8::text::jinja
