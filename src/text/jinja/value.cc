#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/arguments.h"
#include "text/jinja/failure.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

constexpr size_t kSmallDict = 8;  // up to here a walk beats an index
constexpr double kTwoTo63 = 9223372036854775808.0;

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) fail("a value nests more than {} levels deep", kMaxValueDepth);
  return depth;
}

bool equal_items(const std::vector<Value>& left, const std::vector<Value>& right) {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), equal);
}

bool equal_dicts(const Dict& left, const Dict& right) {
  return left.pairs().size() == right.pairs().size() &&
         std::all_of(left.pairs().begin(), left.pairs().end(), [&](const auto& pair) {
           const Value* other = right.find(pair.first);
           return other != nullptr && equal(pair.second, *other);
         });
}

bool equal_ranges(const Range& left, const Range& right) {
  const int64_t size = left.size();
  if (size != right.size()) return false;
  return size == 0 || (left.start == right.start && (size == 1 || left.step == right.step));
}

bool equal_numbers(const Value& left, const Value& right) {
  if (left.is_integer() && right.is_integer()) return left.integer() == right.integer();
  return left.number() == right.number();
}

}  // namespace

int depth_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return checked_depth(depth + 1);
}

Sequence::Sequence(std::vector<Value> values)
    : items(std::move(values)),
      depth(depth_of(items)),
      charge(items.size() * sizeof(Value) + sizeof(Sequence)) {
  spend_steps(1);
  spend_copies(items.size());
}

Dict::Dict(std::vector<std::pair<Value, Value>> pairs)
    : charge_(pairs.size() * (sizeof(Value) * 2 + 4 * sizeof(size_t)) + sizeof(Dict)) {
  spend_steps(1 + static_cast<int64_t>(pairs.size()));
  pairs_.reserve(pairs.size());
  for (auto& pair : pairs) {
    const size_t hash = hash_of(pair.first);
    depth_ = std::max({depth_, pair.first.depth() + 1, pair.second.depth() + 1});
    if (const auto at = position(pair.first, hash)) {
      pairs_[*at].second = std::move(pair.second);
    } else {
      append(std::move(pair), hash);
    }
  }
  checked_depth(depth_);
}

void Dict::append(std::pair<Value, Value> pair, size_t hash) {
  pairs_.push_back(std::move(pair));
  if (pairs_.size() == kSmallDict + 1) {
    for (size_t i = 0; i < pairs_.size(); ++i) index_.emplace(hash_of(pairs_[i].first), i);
  } else if (pairs_.size() > kSmallDict) {
    index_.emplace(hash, pairs_.size() - 1);
  }
}

std::optional<size_t> Dict::position(const Value& key, size_t hash) const {
  if (index_.empty()) {
    for (size_t i = 0; i < pairs_.size(); ++i) {
      if (equal(pairs_[i].first, key)) return i;
    }
    return std::nullopt;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (equal(pairs_[it->second].first, key)) return it->second;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const auto at = position(key, hash_of(key));
  return at ? &pairs_[*at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find(Value(key));
  for (const auto& [name, value] : pairs_) {
    if (name.is_string() && name.string_bytes() == key.size() && name.string() == key) return &value;
  }
  return nullptr;
}

int64_t Range::size() const {
  if (step > 0 && start < stop)
    return static_cast<int64_t>((static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) - 1) /
                                static_cast<uint64_t>(step)) +
           1;
  if (step < 0 && start > stop)
    return static_cast<int64_t>((static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) - 1) /
                                (uint64_t{0} - static_cast<uint64_t>(step))) +
           1;
  return 0;
}

std::string Object::repr() const {
  return fmt::format("<{}>", type_name());
}

std::optional<Value> Object::attribute(std::string_view) {
  return std::nullopt;
}

Value Object::call(Interpreter&, const Arguments&) {
  fail("'{}' object is not callable", type_name());
}

std::optional<int64_t> Object::length() const {
  if (items() == nullptr) return std::nullopt;
  return static_cast<int64_t>(items()->size());
}

Value Value::undefined(std::string message) {
  return Value(std::make_shared<const Undefined>(std::move(message)));
}

Value Value::from_json(const OrderedJson& json, int depth) {
  checked_depth(depth);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const auto value = json.get<uint64_t>();
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail("the integer {} in the context has more than 64 bits", value);
      }
      return Value(static_cast<int64_t>(value));
    }
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string:
      return Value(json.get_ref<const std::string&>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> pairs;
      pairs.reserve(json.size());
      for (const auto& [key, item] : json.items()) pairs.emplace_back(Value(key), from_json(item, depth + 1));
      return dict(std::move(pairs));
    }
    default:
      return {};
  }
}

Sequence& Value::sequence() const {
  switch (kind()) {
    case Kind::list:
      return *std::get<std::shared_ptr<List>>(data_);
    case Kind::tuple:
      return *std::get<std::shared_ptr<Tuple>>(data_);
    default:
      return *std::get<std::shared_ptr<Generator>>(data_);
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::list:
    case Kind::tuple:
    case Kind::generator:
      return sequence().depth;
    case Kind::dict:
      return dict().depth();
    case Kind::object:
      return object().depth();
    default:
      return 0;
  }
}

bool Value::is_same(const Value& other) const {
  return data_ == other.data_;
}

Iterator::Iterator(Value source) : source_(std::move(source)) {
  switch (source_.kind()) {
    case Value::Kind::none:
    case Value::Kind::boolean:
    case Value::Kind::integer:
    case Value::Kind::floating:
      fail("'{}' object is not iterable", type_name(source_));
    case Value::Kind::object:
      if (source_.object().items() == nullptr) fail("'{}' object is not iterable", type_name(source_));
      break;
    case Value::Kind::string:
      text_ = &source_.string();
      break;
    default:
      break;
  }
}

std::optional<Value> Iterator::next() {
  spend_steps(1);
  switch (source_.kind()) {
    case Value::Kind::string: {
      if (position_ >= text_->size()) return std::nullopt;
      const size_t start = position_;
      next_character(*text_, position_);
      return Value(text_->substr(start, position_ - start));
    }
    case Value::Kind::list:
    case Value::Kind::tuple: {
      const auto& items = source_.sequence().items;
      if (position_ >= items.size()) return std::nullopt;
      return items[position_++];
    }
    case Value::Kind::generator: {
      Generator& generator = source_.generator();
      if (generator.consumed >= generator.items.size()) return std::nullopt;
      return generator.items[generator.consumed++];
    }
    case Value::Kind::dict: {
      const auto& pairs = source_.dict().pairs();
      if (position_ >= pairs.size()) return std::nullopt;
      return pairs[position_++].first;
    }
    case Value::Kind::range: {
      const Range& range = source_.range();
      if (static_cast<int64_t>(position_) >= range.size()) return std::nullopt;
      return Value(range.start + range.step * static_cast<int64_t>(position_++));
    }
    case Value::Kind::object: {
      const auto& items = *source_.object().items();
      if (position_ >= items.size()) return std::nullopt;
      return items[position_++];
    }
    default:
      return std::nullopt;  // Undefined is an empty iterable
  }
}

std::vector<Value> to_vector(const Value& iterable) {
  if (const auto length = length_of(iterable)) checked_size(static_cast<size_t>(*length), sizeof(Value));
  std::vector<Value> items;
  Iterator iterator(iterable);
  while (auto item = iterator.next()) items.push_back(std::move(*item));
  return items;
}

std::optional<int64_t> length_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
      return 0;
    case Value::Kind::string:
      return static_cast<int64_t>(character_count(value.string()));
    case Value::Kind::list:
    case Value::Kind::tuple:
      return static_cast<int64_t>(value.sequence().items.size());
    case Value::Kind::dict:
      return static_cast<int64_t>(value.dict().pairs().size());
    case Value::Kind::range:
      return value.range().size();
    case Value::Kind::object:
      return value.object().length();
    default:
      return std::nullopt;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::none:
    case Value::Kind::undefined:
      return false;
    case Value::Kind::boolean:
    case Value::Kind::integer:
      return value.integer() != 0;
    case Value::Kind::floating:
      return value.number() != 0;
    case Value::Kind::string:
      return value.string_bytes() > 0;
    case Value::Kind::generator:
      return true;
    default:
      return length_of(value).value_or(1) != 0;
  }
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::none:
      return "NoneType";
    case Value::Kind::undefined:
      return "Undefined";
    case Value::Kind::boolean:
      return "bool";
    case Value::Kind::integer:
      return "int";
    case Value::Kind::floating:
      return "float";
    case Value::Kind::string:
      return "str";
    case Value::Kind::list:
      return "list";
    case Value::Kind::tuple:
      return "tuple";
    case Value::Kind::dict:
      return "dict";
    case Value::Kind::range:
      return "range";
    case Value::Kind::generator:
      return "generator";
    case Value::Kind::object:
      return value.object().type_name();
  }
  return {};
}

size_t hash_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::string:
      return std::hash<std::string>{}(value.string());
    case Value::Kind::boolean:
    case Value::Kind::integer:
      return std::hash<int64_t>{}(value.integer());
    case Value::Kind::floating: {  // equal numbers have equal hashes, whatever their type
      const double number = value.number();
      if (number == std::floor(number) && std::fabs(number) < kTwoTo63) {
        return std::hash<int64_t>{}(static_cast<int64_t>(number));
      }
      return std::hash<double>{}(number);
    }
    case Value::Kind::tuple: {
      spend_steps(1);
      size_t hash = 0x345678;
      for (const Value& item : value.sequence().items) hash = hash * 1000003 + hash_of(item);
      return hash;
    }
    case Value::Kind::list:
    case Value::Kind::dict:
      fail("unhashable type: '{}'", type_name(value));
    case Value::Kind::object:
      if (value.object().items() != nullptr) fail("unhashable type: '{}'", type_name(value));
      return std::hash<const Object*>{}(&value.object());
    default:
      return static_cast<size_t>(value.kind());
  }
}

bool equal(const Value& left, const Value& right) {
  spend_steps(1);
  if (left.is_number() && right.is_number()) return equal_numbers(left, right);
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Value::Kind::none:
    case Value::Kind::undefined:
      return true;
    case Value::Kind::string:
      return left.string_bytes() == right.string_bytes() && left.string() == right.string();
    case Value::Kind::list:
    case Value::Kind::tuple:
      return left.is_same(right) || equal_items(left.sequence().items, right.sequence().items);
    case Value::Kind::dict:
      return left.is_same(right) || equal_dicts(left.dict(), right.dict());
    case Value::Kind::range:
      return equal_ranges(left.range(), right.range());
    case Value::Kind::object:
      return left.object().equals(right.object());
    default:
      return left.is_same(right);
  }
}

void fail_undefined(const Value& value) {
  fail("{}", value.undefined_message());
}

}  // namespace kv8::text::jinja
