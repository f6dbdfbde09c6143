// Limits, error messages and what is refused on purpose: what Jinja2 can't be the oracle for.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/jinja/template.h"

namespace kv8::text::jinja {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

Expected<std::string> render(const std::string& source, const RenderLimits& limits = {},
                             const OrderedJson& context = OrderedJson::object()) {
  auto parsed = Template::parse(source, "t.jinja");
  if (!parsed) return tl::make_unexpected(parsed.error());
  return parsed->render(context, limits);
}

std::string error_of(const std::string& source, const RenderLimits& limits = {}) {
  const auto result = render(source, limits);
  EXPECT_FALSE(result) << source << " renders: " << result->substr(0, 200);
  return result ? "" : result.error().message;
}

TEST(Jinja, ErrorsNameTemplateLineAndColumn) {
  EXPECT_EQ(error_of("a\n{% if x %}\n  {{ x.y }}{% endif %}{{ x.y }}"),
            "t.jinja: line 3, column 27: 'x' is undefined");
  EXPECT_EQ(error_of("{{ 'é' ~ (1 / 0) }}"), "t.jinja: line 1, column 13: division by zero");
  EXPECT_EQ(error_of("{% for x in y %}\n{% endif %}"),
            "t.jinja: line 2, column 4: Encountered unknown tag 'endif'");
  EXPECT_THAT(error_of("{% if a %}"), HasSubstr("expected the tag 'endif'"));
  EXPECT_THAT(error_of("\n {{ raise_exception('No system role: ' ~ 5) }}"),
              HasSubstr("line 2, column 20: No system role: 5"));
}

TEST(Jinja, FilesAndChanceAreRefused) {
  for (const auto* source : {"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
                             "{% extends 'x' %}", "{% block x %}{% endblock %}", "{{ [1]|random }}"}) {
    const auto result = render(source);
    ASSERT_FALSE(result) << source;
    EXPECT_EQ(result.error().code, ErrorCode::unsupported) << source;
  }
}

TEST(Jinja, TheContextMustBeAnObject) {
  EXPECT_FALSE(render("x", {}, OrderedJson::array()));
}

TEST(Jinja, IntegersThatOverflowAreAnError) {
  for (const auto* source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775807 * 2 }}", "{{ 2 ** 63 }}", "{{ 3 ** 100 }}",
        "{{ -9223372036854775807 - 2 }}", "{{ 9223372036854775808 }}", "{{ 1e300|int }}",
        "{{ '9223372036854775808'|int }}", "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ -(-9223372036854775807 - 1) }}", "{{ (-9223372036854775807 - 1)|abs }}"}) {
    EXPECT_THAT(error_of(source), HasSubstr("64")) << source;
  }
  EXPECT_EQ(*render("{{ -9223372036854775807 - 1 }}"), "-9223372036854775808");
  EXPECT_EQ(*render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
}

TEST(Jinja, WhatRunsAwayStopsAtALimit) {
  RenderLimits limits;
  limits.max_steps = 200'000;
  limits.max_memory_bytes = size_t{16} << 20;
  limits.max_output_bytes = size_t{1} << 20;
  const char* sources[] = {
      "{{ 'a' * 10 ** 9 }}",
      "{% set s = namespace(x='') %}{% for i in range(99999) %}{% set s.x = s.x + 'xxxxxxxxxxxxxxxx' %}{% "
      "endfor %}",
      "{% set s = namespace(x='') %}{% for i in range(99999) %}{% set s.x = s.x ~ 'xxxxxxxxxxxxxxxx' %}{% "
      "endfor %}",
      "{{ [1] * 10 ** 12 }}",
      "{{ 'a' * 10 ** 12 * 10 ** 12 }}",
      "{{ range(10 ** 9) }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [[[[1]]]] recursive %}{{ loop([x]) }}{% endfor %}",
      "{% set s = namespace(v='a') %}{% for i in range(99) %}{% set s.v = s.v ~ s.v %}{% endfor %}",
      "{% set s = namespace(v=[1]) %}{% for i in range(99) %}{% set s.v = [s.v, s.v] %}{% endfor %}{{ s.v }}",
      "{% set s = namespace(v=[1], w=[1]) %}{% for i in range(99) %}{% set s.v = [s.v, s.v] %}{% set s.w = "
      "[s.w, s.w] %}"
      "{% endfor %}{{ s.v == s.w }}",
      "{% set s = namespace(v=[1]) %}{% for i in range(99) %}{% set s.v = [s.v, s.v] %}{% endfor %}{{ "
      "s.v|tojson }}",
      "{% set s = namespace(v=(1,)) %}{% for i in range(99) %}{% set s.v = (s.v, s.v) %}{% endfor %}{{ {s.v: "
      "1} }}",
      "{% set s = namespace(v=[]) %}{% for i in range(99999) %}{% set s.v = [s.v] %}{% endfor %}",
      "{% set s = namespace(v=1) %}{% for i in range(99999) %}{% set s.v = cycler(s.v) %}{% endfor %}",
      "{% set s = namespace(v=dict(a=1)) %}{% for i in range(99999) %}{% set s.v = dict(a=s.v) %}{% endfor "
      "%}",
      "{% set s = namespace(v={}) %}{% for i in range(99999) %}{% set s.v = {'a': s.v.items} %}{% endfor %}",
      "{% set a = namespace() %}{% set a.x = a %}{{ a }}",
      "{% set s = namespace(k=[]) %}{% for i in range(99999) %}{% macro m() %}{{ i }}{% endmacro %}{% set "
      "s.k = s.k + [m] %}"
      "{% endfor %}",
      "{{ '%999999999d' % 1 }}",
      "{{ '%.999999999f' % 1 }}",
      "{{ '{:>999999999}'.format(1) }}",
      "{{ '{:99999999999999999999}'.format(1) }}",
      "{{ 'a'.center(10 ** 10) }}",
      "{{ 'a'|indent(10 ** 10, true) }}",
      "{{ [1]|batch(10 ** 12, 0)|list }}",
      "{{ [1]|slice(10 ** 12)|list }}",
      "{{ [[1]]|tojson(indent=10 ** 10) }}",
      "{{ ('a' * 10 ** 6).replace('', 'b' * 1000) }}",
      "{{ ('b' * 1000).join('a' * 10 ** 6) }}",
      "{{ '\t'.expandtabs(10 ** 12) }}",
      "{{ ('a,' * 10 ** 6).split(',') }}",
      "{{ ('a' * 10 ** 5)|list|map('center', 10 ** 4)|list }}",
      "{{ strftime_now('%999999d') }}",
      // Passes over long texts, and searches that a naive algorithm would take the product of the sizes for.
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ l|length }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.upper() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.lower() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.title() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.swapcase() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.capitalize() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.strip() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.splitlines() }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ 'x' if l.isalpha() }}{% endfor %}",
      "{% set l = 'b' * 10 ** 6 %}{% for i in range(999) %}{{ 'x' if l.strip('a' * 500000 + 'b') }}{% endfor "
      "%}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ l == k }}{% "
      "endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ l < k }}{% endfor "
      "%}",
      "{% set l = 'a' * 10 ** 6 %}{% for i in range(99999) %}{{ {l: 1} is none }}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 500000 + 'b' %}{% for i in range(999) %}{{ k in l }}{% "
      "endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 500000 + 'b' %}{% for i in range(999) %}{{ l.find(k) }}{% "
      "endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'b' + 'a' * 500000 %}{% for i in range(999) %}{{ l.rfind(k) "
      "}}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 500000 + 'b' %}{% for i in range(999) %}{{ l.count(k) "
      "}}{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 500000 + 'b' %}{% for i in range(999) %}{{ 'x' if "
      "l.split(k) }}"
      "{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 500000 + 'b' %}{% for i in range(999) %}{{ 'x' if "
      "l.replace(k, '') }}"
      "{% endfor %}",
      "{% set l = 'a' * 10 ** 6 %}{% set k = 'a' * 500000 + 'b' %}{% for i in range(999) %}{{ 'x' if "
      "l.partition(k) }}"
      "{% endfor %}",
  };
  // That it ends is the whole test: without its limit each of these needs hours or more memory than there is.
  for (const auto* source : sources) {
    EXPECT_THAT(error_of(source, limits), AnyOf(HasSubstr("more than"), HasSubstr("too "), HasSubstr("above"),
                                                HasSubstr("can't write a date")))
        << source;
  }
}

TEST(Jinja, SourcesThatNestTooDeeplyAreRefused) {
  const std::pair<std::string, std::string> pairs[] = {
      {"(", ")"}, {"[", "]"}, {"{1:", "}"}, {"-", ""}, {"not ", ""}, {"a[", "]"}, {"f(", ")"}, {"1 if ", ""}};
  for (const auto& [open, close] : pairs) {
    std::string source = "{{ ";
    for (int i = 0; i < 100000; ++i) source += open;
    source += '1';
    for (int i = 0; i < 100000; ++i) source += close;
    EXPECT_FALSE(render(source + " }}")) << open;
  }
  for (const std::string chain : {"+1", ".a", "|abs", "[0]", "()", " and 1", " is odd", " if 1"}) {
    std::string source = "{{ 1";
    for (int i = 0; i < 100000; ++i) source += chain;
    EXPECT_FALSE(render(source + " }}")) << chain;
  }
  for (const std::string tag :
       {"{% if 1 %}", "{% for x in y %}", "{% macro m() %}", "{% set x %}", "{% with %}"}) {
    std::string source;
    for (int i = 0; i < 100000; ++i) source += tag;
    EXPECT_FALSE(render(source)) << tag;
  }
}

TEST(Jinja, BytesThatAreNotUtf8PassThrough) {
  EXPECT_EQ(*render("a\xff\xc3{{ 'b\xfe' }}\x80"),
            "a\xff\xc3"
            "b\xfe\x80");
  EXPECT_EQ(*render("{{ ('\xff\xc3' ~ 'x')[::-1]|length }}"), "3");
}

TEST(Jinja, AParsedTemplateRendersInSeveralThreads) {
  const auto parsed = Template::parse(
      "{% set n = namespace(x='') %}{% for i in range(50) %}{% set n.x = n.x ~ v %}{% endfor %}{{ n.x }}",
      "t");
  ASSERT_TRUE(parsed);
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        results[t] = parsed->render({{"v", std::string(1, static_cast<char>('a' + t))}}).value_or("");
    });
  }
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < results.size(); ++t)
    EXPECT_EQ(results[t], std::string(50, static_cast<char>('a' + t)));
}

}  // namespace
}  // namespace kv8::text::jinja
