#include "text/jinja/tests.h"

#include <algorithm>

#include "text/jinja/failure.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/python_text.h"
#include "text/jinja/utf8.h"

namespace kv8::text::jinja {

namespace {

using Call = const Bound&;
using Kind = Value::Kind;

template <Comparison op>
Value compares(Interpreter&, const Value& self, Call arguments) {
  return Value(compare(op, self, arguments[0]));
}

template <Kind kind>
Value is_kind(Interpreter&, const Value& self, Call) {
  return Value(self.kind() == kind);
}

template <bool wanted>
Value is_boolean_value(Interpreter&, const Value& self, Call) {
  return Value(self.is_bool() && self.boolean() == wanted);
}

bool leaves(const Value& value, const Value& divisor, int64_t rest) {
  return equal(apply(BinaryOperator::modulo, value, divisor), Value(rest));
}

template <int64_t rest>
Value is_parity(Interpreter&, const Value& self, Call) {
  return Value(leaves(self, Value(int64_t{2}), rest));
}

Value is_divisible_by(Interpreter&, const Value& self, Call arguments) {
  return Value(leaves(self, arguments[0], 0));
}

Value is_iterable(Interpreter&, const Value& self, Call) {
  return Value(
      self.is_undefined() || self.kind() == Kind::generator ||
      (self.kind() == Kind::object ? self.object().items() != nullptr : length_of(self).has_value()));
}

Value is_sequence(Interpreter&, const Value& self, Call) {
  return Value(self.kind() != Kind::object && length_of(self).has_value());
}

Value is_callable(Interpreter&, const Value& self, Call) {
  return Value(self.is_undefined() || (self.kind() == Kind::object && self.object().callable()));
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value is_case(Interpreter&, const Value& self, Call) {
  const std::u32string text = decode(to_text(self));
  return Value(std::any_of(text.begin(), text.end(), wanted) &&
               std::none_of(text.begin(), text.end(), other));
}

constexpr Native kTests[] = {
    {"defined", "", [](Interpreter&, const Value& self, Call) { return Value(!self.is_undefined()); }},
    {"undefined", "", is_kind<Kind::undefined>},
    {"none", "", is_kind<Kind::none>},
    {"boolean", "", is_kind<Kind::boolean>},
    {"true", "", is_boolean_value<true>},
    {"false", "", is_boolean_value<false>},
    {"integer", "", is_kind<Kind::integer>},
    {"float", "", is_kind<Kind::floating>},
    {"number", "", [](Interpreter&, const Value& self, Call) { return Value(self.is_number()); }},
    {"string", "", is_kind<Kind::string>},
    {"mapping", "", is_kind<Kind::dict>},
    {"sequence", "", is_sequence},
    {"iterable", "", is_iterable},
    {"callable", "", is_callable},
    {"escaped", "", [](Interpreter&, const Value&, Call) { return Value(false); }},
    {"sameas", "other",
     [](Interpreter&, const Value& self, Call arguments) { return Value(self.is_same(arguments[0])); }},
    {"lower", "", is_case<is_lower, is_upper>},
    {"upper", "", is_case<is_upper, is_lower>},
    {"odd", "", is_parity<1>},
    {"even", "", is_parity<0>},
    {"divisibleby", "num", is_divisible_by},
    {"in", "seq", compares<Comparison::in>},
    {"filter", "",
     [](Interpreter&, const Value& self, Call) {
       return Value(self.is_string() && find_filter(self.string()) != nullptr);
     }},
    {"test", "",
     [](Interpreter&, const Value& self, Call) {
       return Value(self.is_string() && find_test(self.string()) != nullptr);
     }},
    {"==", "other", compares<Comparison::equal>},
    {"eq", "other", compares<Comparison::equal>},
    {"equalto", "other", compares<Comparison::equal>},
    {"!=", "other", compares<Comparison::not_equal>},
    {"ne", "other", compares<Comparison::not_equal>},
    {"<", "other", compares<Comparison::less>},
    {"lt", "other", compares<Comparison::less>},
    {"lessthan", "other", compares<Comparison::less>},
    {"<=", "other", compares<Comparison::less_equal>},
    {"le", "other", compares<Comparison::less_equal>},
    {">", "other", compares<Comparison::greater>},
    {"gt", "other", compares<Comparison::greater>},
    {"greaterthan", "other", compares<Comparison::greater>},
    {">=", "other", compares<Comparison::greater_equal>},
    {"ge", "other", compares<Comparison::greater_equal>},
};

}  // namespace

std::span<const Native> all_tests() {
  return kTests;
}

const Native* find_test(std::string_view name) {
  return find_native(kTests, name);
}

}  // namespace kv8::text::jinja
