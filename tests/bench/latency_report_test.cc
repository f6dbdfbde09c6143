#include "bench/latency_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/fake_subject.h"
#include "bench/svg_plot.h"

namespace kv8::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

const LatencyContext kContext = {"models/<tiny> & co", "cpu (2 threads)", "2026-12-07T12:00:00Z",
                                 "kv8 bench latency models/<tiny>"};

class LatencyReportTest : public testing::Test {
 protected:
  FakeBench fake_;
  LatencyReport report_ = fake_.measure().value();
};

TEST_F(LatencyReportTest, TableHasMediansFitsAndBreakEven) {
  const std::string table = latency_table(report_, fake_.options, kContext);
  EXPECT_THAT(table, HasSubstr("131,072"));
  EXPECT_THAT(table, HasSubstr("12.168"));  // BF16's ITL at 131,072 tokens: 6.44 + 5.72790
  EXPECT_THAT(table, HasSubstr("slope 4.370e-05 ms/token, intercept 6.440 ms"));
  EXPECT_THAT(table, HasSubstr("a 2.000e-07 ms/token^2, b 3.100e-02 ms/token, c 11.00 ms"));
  EXPECT_THAT(table, HasSubstr("from 7,000 tokens on"));
  EXPECT_THAT(table, HasSubstr("65,536 bytes a token"));
  EXPECT_THAT(table, Not(HasSubstr("interruption")));
}

TEST_F(LatencyReportTest, JsonHasWhatIsNeededToFitAgain) {
  const Json json = Json::parse(latency_json(report_, fake_.options, kContext).dump());
  EXPECT_EQ(json["model"], kContext.model);
  EXPECT_EQ(json["concurrency"], 1);
  EXPECT_EQ(json["subjects"].size(), 2U);
  const Json& fp8 = json["subjects"][1];
  EXPECT_EQ(fp8["name"], "fp8");
  EXPECT_EQ(fp8["bytes_per_token"], 65'536);
  EXPECT_EQ(fp8["points"].size(), 4U);
  EXPECT_EQ(fp8["points"][1]["prompt_tokens"], 1024);
  EXPECT_NEAR(fp8["points"][1]["itl_ms"]["median"].get<double>(), 2.37e-5 * 1024 + 6.58, 1e-8);
  EXPECT_NEAR(fp8["itl_fit"]["slope_ms_per_token"].get<double>(), 2.37e-5, 1e-11);
  EXPECT_NEAR(fp8["itl_fit"]["intercept_ms"].get<double>(), 6.58, 1e-7);
  EXPECT_NEAR(fp8["ttft_fit"]["a_ms_per_token2"].get<double>(), 1.5e-7, 1e-13);
  EXPECT_NEAR(fp8["ttft_fit"]["c_ms"].get<double>(), 12.0, 1e-6);
  EXPECT_EQ(fp8["itl_fit"]["residuals_ms"].size(), 4U);
  EXPECT_NEAR(json["comparisons"][0]["break_even_tokens"].get<double>(), 7000, 0.1);
  EXPECT_FALSE(json["interrupted"].get<bool>());
}

TEST_F(LatencyReportTest, PageStandsAlone) {
  const std::string page = latency_html(report_, fake_.options, kContext);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("<tiny>")));
  EXPECT_THAT(page, HasSubstr("models/&lt;tiny&gt; &amp; co"));
  EXPECT_THAT(page, HasSubstr("break-even: 7,000 tokens"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(page, Not(HasSubstr("inf ")));
  size_t plots = 0;
  for (size_t at = page.find("<svg"); at != std::string::npos; at = page.find("<svg", at + 1)) ++plots;
  EXPECT_EQ(plots, 3U);
}

// One length, or an interruption: no fits, and nothing that needs them.
TEST(LatencyReport, WithoutFits) {
  FakeBench fake;
  fake.options.prompt_lengths = {64};
  LatencyReport report = fake.measure().value();
  report.interrupted = true;
  report.subjects[1].points.clear();
  const std::string table = latency_table(report, fake.options, kContext);
  EXPECT_THAT(table, HasSubstr("needs two prompt lengths"));
  EXPECT_THAT(table, HasSubstr("interruption"));
  EXPECT_THAT(table, HasSubstr(" -\n"));
  EXPECT_TRUE(latency_json(report, fake.options, kContext)["subjects"][0]["itl_fit"].is_null());
  const std::string page = latency_html(report, fake.options, kContext);
  EXPECT_THAT(page, HasSubstr("</html>"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(BreakEvenText, SaysFromWhere) {
  EXPECT_EQ(break_even_text(std::nullopt), "never");
  EXPECT_EQ(break_even_text(0.0), "from the first token on");
  EXPECT_EQ(break_even_text(7010.2), "from 7,010 tokens on");
  EXPECT_EQ(break_even_text(1e300), "never");
}

TEST(SvgPlot, TicksAreRoundAndCoverTheRange) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(0, 11, 5), (std::vector<double>{0, 5, 10, 15}));
  EXPECT_EQ(linear_ticks(-3, 4, 4), (std::vector<double>{-4, -2, 0, 2, 4}));
  EXPECT_EQ(linear_ticks(7, 7, 4), (std::vector<double>{7}));
}

TEST(SvgPlot, PointsLieWhereTheAxesSay) {
  Plot plot;
  plot.x = {"x", false};
  plot.y = {"y", false};
  plot.series.push_back({"s", 0, {{10, 20, 20, 20, "the end"}, {0, 0, 0, 0, "the origin"}}, {}});
  const std::string picture = svg(plot);
  // The corners of the frame: 78 to 744 and 346 to 40.
  EXPECT_THAT(picture, HasSubstr("cx=\"744.0\" cy=\"40.0\" r=\"4\"><title>the end"));
  EXPECT_THAT(picture, HasSubstr("cx=\"78.0\" cy=\"346.0\" r=\"4\"><title>the origin"));
}

}  // namespace
}  // namespace kv8::bench
