// What reads or makes a long text costs steps in proportion to it, whatever filter, test, method, function or
// operator does it: all of them are enumerated from the tables that templates themselves use.
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/jinja/budget.h"
#include "text/jinja/filters.h"
#include "text/jinja/globals.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/parser.h"
#include "text/jinja/tests.h"

namespace kv8::text::jinja {
namespace {

constexpr size_t kShort = size_t{1} << 10;
constexpr size_t kLong = size_t{1} << 14;
constexpr int64_t kTimes = 8;

std::string long_text(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += "word <b> ";
  return text.substr(0, bytes);
}

// The steps of kTimes evaluations, beyond what the context costs; nullopt if the template fails.
std::optional<int64_t> steps_of(const std::string& expression, size_t bytes) {
  const std::string source =
      "{% for i in range(" + std::to_string(kTimes) + ") %}{% set x = " + expression + " %}{% endfor %}";
  const OrderedJson context = {{"t", long_text(bytes)},     {"u", long_text(bytes)},
                               {"l", {long_text(bytes)}},   {"d", {{"k", long_text(bytes)}}},
                               {"p", {{"a", 1}, {"b", 2}}}, {"digits", std::string(bytes, '1')}};
  constexpr int64_t kLimit = 500'000;
  RenderLimits limits;
  limits.max_steps = kLimit;
  Budget budget(limits);
  const Budget::Use use(budget);
  try {
    const Body body = Parser(source).parse();
    const RenderHooks hooks;
    Interpreter interpreter(budget, hooks, Value::from_json(context));
    const int64_t before = budget.steps();
    interpreter.run(body);
    return budget.steps() - before;
  } catch (const Failure& failure) {
    return failure.message.ends_with("steps") ? std::optional(kLimit) : std::nullopt;
  }
}

// Whether an expression costs at least one pass over the text each time; nullopt if it is an error.
std::optional<bool> charges(const std::string& expression) {
  const auto few = steps_of(expression, kShort);
  const auto many = steps_of(expression, kLong);
  if (!few || !many) return std::nullopt;
  return *many - *few >= kTimes * static_cast<int64_t>((kLong - kShort) / kBytesPerStep);
}

// By the table's row: one expression that has it read or make a long text.
using Expressions = std::map<std::string_view, std::string>;

void expect_charges(std::span<const Native> table, const std::string& usual, const Expressions& unusual,
                    const std::set<std::string_view>& free) {
  for (const Native& native : table) {
    const auto found = unusual.find(native.name);
    const std::string expression =
        found != unusual.end() ? found->second : fmt::format(fmt::runtime(usual), native.name);
    const auto charged = charges("(" + expression + ")");
    ASSERT_TRUE(charged) << expression << " fails: this test needs an expression for it";
    EXPECT_EQ(*charged, !free.contains(native.name)) << expression;
  }
}

// Free is what passes a text on as it is, or asks for its type, its being there or its length in bytes.
TEST(JinjaBudget, EveryFilterChargesForTheTextItReads) {
  const Expressions unusual = {
      {"attr", "t|attr(u)"},
      {"batch", "t|batch(2)"},
      {"dictsort", "{t: 1}|dictsort"},
      {"groupby", "[[t], [u]]|groupby(0)"},
      {"items", "{t: 1}|items"},
      {"map", "[t]|map('upper')"},
      {"replace", "t|replace('w', u)"},
      {"selectattr", "[p]|selectattr(t)"},
      {"rejectattr", "[p]|rejectattr(t)"},
      {"slice", "t|slice(2)"},
      {"abs", "1|abs"},
      {"round", "1|round"},
      {"random", "1"},
      {"sum", "[p]|sum(attribute='a', start=1)"},
  };
  const std::set<std::string_view> numbers_only = {"abs", "round", "random", "sum"};
  std::set<std::string_view> free = {"d", "default", "safe"};
  free.insert(numbers_only.begin(), numbers_only.end());
  for (const auto table : {text_filters(), sequence_filters(), value_filters()})
    expect_charges(table, "t|{}", unusual, free);
}

TEST(JinjaBudget, EveryTestChargesForTheTextItReads) {
  Expressions unusual = {{"odd", "1 is odd"}, {"even", "1 is even"}, {"divisibleby", "1 is divisibleby(2)"}};
  for (const std::string_view symbol : {"==", "!=", "<", "<=", ">", ">="})
    unusual[symbol] = fmt::format("[t]|select('{}', u)", symbol);
  for (const std::string_view word :
       {"in", "sameas", "eq", "equalto", "ne", "lt", "lessthan", "le", "gt", "greaterthan", "ge"})
    unusual[word] = fmt::format("t is {}(u)", word);
  expect_charges(all_tests(), "t is {}", unusual,
                 {"defined", "undefined", "none", "boolean", "true", "false", "integer", "float", "number",
                  "string", "mapping", "callable", "escaped", "sameas", "odd", "even", "divisibleby"});
}

TEST(JinjaBudget, EveryMethodChargesForTheTextItReads) {
  const Expressions strings = {
      {"center", "t.center(99999)"},
      {"count", "t.count('w')"},
      {"endswith", "t.endswith(u)"},
      {"find", "t.find('xyz')"},
      {"index", "t.index('>')"},
      {"join", "t.join('abc')"},
      {"ljust", "t.ljust(99999)"},
      {"partition", "t.partition('xyz')"},
      {"removeprefix", "t.removeprefix(u)"},
      {"removesuffix", "t.removesuffix(u)"},
      {"replace", "t.replace('w', 'v')"},
      {"rfind", "t.rfind('xyz')"},
      {"rindex", "t.rindex('w')"},
      {"rjust", "t.rjust(99999)"},
      {"rpartition", "t.rpartition('xyz')"},
      {"startswith", "t.startswith(u)"},
      {"zfill", "t.zfill(99999)"},
  };
  expect_charges(methods_of(Value::Kind::string), "t.{}()", strings, {});
  expect_charges(methods_of(Value::Kind::list), "l.{}()",
                 {{"count", "l.count(t)"}, {"index", "l.index(t)"}, {"pop", "[t].pop()"}},
                 {"clear", "copy", "pop"});
  expect_charges(methods_of(Value::Kind::tuple), "(t,).{}(u)", {}, {});
  expect_charges(methods_of(Value::Kind::dict), "d.{}()", {{"get", "p.get(t)"}},
                 {"copy", "items", "keys", "values"});
}

TEST(JinjaBudget, EveryFunctionChargesForTheTextItReads) {
  expect_charges(all_globals(), "{}()",
                 {{"range", "range(2)"},
                  {"dict", "dict([(t, 1)])"},
                  {"cycler", "cycler(t).next()"},
                  {"raise_exception", "1"},  // ends the rendering
                  {"strftime_now", "1"}},    // writes at most a kilobyte
                 {"range", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"});
}

TEST(JinjaBudget, EveryOperatorChargesForTheTextItReads) {
  for (const char* expression : {"t + 'a'",
                                 "'a' + t",
                                 "t * 2",
                                 "2 * t",
                                 "t % ()",
                                 "'%s' % t",
                                 "t ~ 1",
                                 "1 ~ t",
                                 "t == u",
                                 "t != u",
                                 "t < u",
                                 "t <= u",
                                 "t > u",
                                 "t >= u",
                                 "t in u",
                                 "t not in u",
                                 "'xyz' in t",
                                 "t in [u]",
                                 "t in {u: 1}",
                                 "t[0]",
                                 "t[-1]",
                                 "t[1:]",
                                 "t[:2]",
                                 "t[::2]",
                                 "{t: 1}",
                                 "d[t]",
                                 "'{}'.format(t)",
                                 "'{:>9}'.format(t)",
                                 "'ab'.replace('a', t)",
                                 "'ab'.join([t, t])",
                                 "'ab'.strip(t)",
                                 "'ab'.split(t)",
                                 "[t]|string",
                                 "{'a': t}|tojson",
                                 "[t]|join",
                                 "p[t]",
                                 "[t] == [u]",
                                 "(t,) < (u,)"}) {
    EXPECT_EQ(charges(fmt::format("({})", expression)), true) << expression;
  }
  for (const char* expression : {"t", "[t]", "(t,)", "{1: t}", "t and u", "not t", "1 if t else 2"})
    EXPECT_EQ(charges(fmt::format("({})", expression)), false) << expression;
}

}  // namespace
}  // namespace kv8::text::jinja
