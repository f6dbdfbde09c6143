// Hundreds of small templates against what Jinja2 itself made of them (scripts/make_jinja_goldens.py).
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "core/json.h"
#include "text/jinja/template.h"

namespace kv8::text::jinja {
namespace {

OrderedJson read_goldens() {
  const auto path = std::filesystem::path(KV8_SOURCE_DIR) / "tests/fixtures/text/jinja_goldens.json";
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  auto goldens = parse_ordered_json(text.str(), path.string());
  EXPECT_TRUE(goldens) << goldens.error().message;
  return goldens.value_or(OrderedJson::object());
}

RenderHooks golden_clock() {  // Wednesday 2026-03-04 05:06:07
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 2;
  now.tm_mday = 4;
  now.tm_hour = 5;
  now.tm_min = 6;
  now.tm_sec = 7;
  now.tm_wday = 3;
  now.tm_yday = 62;
  return {[now] { return now; }};
}

Expected<std::string> render(const std::string& source, const OrderedJson& context) {
  auto parsed = Template::parse(source, "golden");
  if (!parsed) return tl::make_unexpected(parsed.error());
  return parsed->render(context, {}, golden_clock());
}

TEST(JinjaGolden, EveryCaseIsAsJinja2RendersIt) {
  const OrderedJson goldens = read_goldens();
  ASSERT_GT(goldens.value("cases", OrderedJson::array()).size(), 800u);
  for (const auto& golden : goldens["cases"]) {
    const auto source = golden["template"].get<std::string>();
    const auto result = render(source, goldens["context"]);
    if (golden.contains("error")) {
      EXPECT_FALSE(result) << source << "\nrenders, but Jinja2 fails: " << *result;
    } else if (result) {
      EXPECT_EQ(*result, golden["text"].get<std::string>()) << source;
    } else {
      ADD_FAILURE() << source << "\n" << result.error().message;
    }
  }
}

}  // namespace
}  // namespace kv8::text::jinja
