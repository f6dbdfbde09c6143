#include "models/rope.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace kv8::models {
namespace {

Expected<RopeResult> rope_of(const std::string& text, int head_dim = 64, int64_t max_positions = 4096) {
  static Json json;
  json = Json::parse(text);
  const auto object = JsonObject::from(json, "config.json", "rope_parameters").value();
  return make_rope(object, head_dim, 10'000.0, 1.0, max_positions);
}

double base(double theta, int head_dim, int i) {
  return std::pow(theta, -2.0 * i / head_dim);
}

TEST(Rope, Default) {
  const auto rope = rope_of(R"({"rope_type": "default", "rope_theta": 1000000})").value().rope;
  ASSERT_EQ(rope.inverse_frequencies.size(), 32U);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(rope.inverse_frequencies[i] / base(1e6, 64, i), 1.0, 1e-6);
  EXPECT_EQ(rope.magnitude, 1.0F);
}

TEST(Rope, ThetaFallsBackAndOldKeyWorks) {
  const auto rope = rope_of(R"({"type": "linear", "factor": 4.0})").value().rope;
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(rope.inverse_frequencies[i] * 4 / base(1e4, 64, i), 1.0, 1e-6);
}

// Llama 3.1's own code: wavelengths above original/low are divided, below original/high kept, between
// blended.
TEST(Rope, Llama3) {
  const auto rope =
      rope_of(R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})",
              128)
          .value()
          .rope;
  int kept = 0, divided = 0, blended = 0;
  for (int i = 0; i < 64; ++i) {
    const double frequency = base(5e5, 128, i);
    const double wavelength = 2 * std::numbers::pi / frequency;
    double expected = frequency;
    if (wavelength > 8192.0) {
      expected = frequency / 8;
      ++divided;
    } else if (wavelength >= 8192.0 / 4) {
      const double smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0);
      expected = (1 - smooth) * frequency / 8 + smooth * frequency;
      ++blended;
    } else {
      ++kept;
    }
    EXPECT_NEAR(rope.inverse_frequencies[i] / expected, 1.0, 1e-6) << i;
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(divided, 0);
  EXPECT_GT(blended, 0);
}

// gpt-oss: factor 32 from 4,096, theta 150,000, no truncation. The ramp's ends by hand: 64 ln(4096 / (32 * 2
// pi)) / (2 ln 150000) = 8.0928 and 64 ln(4096 / (2 pi)) / (2 ln 150000) = 17.3980; magnitude 0.1 ln 32 + 1
// = 1.34657.
TEST(Rope, YarnWithoutTruncation) {
  const auto rope =
      rope_of(
          R"({"rope_type": "yarn", "rope_theta": 150000, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                "original_max_position_embeddings": 4096, "truncate": false})")
          .value()
          .rope;
  EXPECT_NEAR(rope.magnitude, 1.346574, 1e-5);
  for (int i = 0; i < 32; ++i) {
    const double ramp = std::min(1.0, std::max(0.0, (i - 8.0928) / (17.3980 - 8.0928)));
    const double expected = base(150'000, 64, i) * (ramp / 32 + 1 - ramp);
    EXPECT_NEAR(rope.inverse_frequencies[i] / expected, 1.0, 2e-4) << i;
  }
}

TEST(Rope, YarnTruncatesAndDividesMagnitudes) {
  const auto rope =
      rope_of(
          R"({"rope_type": "yarn", "rope_theta": 150000, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                                "original_max_position_embeddings": 4096})")
          .value()
          .rope;
  EXPECT_NEAR(rope.magnitude, 1.0, 1e-6);
  for (int i = 0; i <= 8; ++i)
    EXPECT_NEAR(rope.inverse_frequencies[i] / base(150'000, 64, i), 1.0, 1e-6) << i;
  for (int i = 18; i < 32; ++i)
    EXPECT_NEAR(rope.inverse_frequencies[i] * 32 / base(150'000, 64, i), 1.0, 1e-6) << i;
  EXPECT_NEAR(rope.inverse_frequencies[13] / base(150'000, 64, 13), 0.5 / 32 + 0.5, 1e-6);
}

TEST(Rope, PartialRotaryTurnsFewerDims) {
  const auto rope = rope_of(R"({"rope_theta": 10000, "partial_rotary_factor": 0.25})", 256).value().rope;
  ASSERT_EQ(rope.inverse_frequencies.size(), 32U);
  EXPECT_NEAR(rope.inverse_frequencies[1] / base(1e4, 64, 1), 1.0, 1e-6);
}

TEST(Rope, RefusesWhatMakesNoSense) {
  for (const char* text :
       {R"({"rope_type": "ntk"})", R"({"rope_type": "linear"})", R"({"rope_type": "linear", "factor": 0})",
        R"({"rope_theta": -1})", R"({"rope_type": "llama3", "factor": 8})", R"({"rope_theta": "x"})",
        R"({"rope_type": "yarn", "factor": -2})", R"({"partial_rotary_factor": 2})",
        R"({"rope_theta": 1e-300})", R"({"rope_type": "linear", "factor": 1e-300})",
        R"({"rope_type": "yarn", "factor": 1e-300})",
        R"({"rope_type": "yarn", "rope_theta": 10000, "factor": 4, "attention_factor": 1e9})",
        R"({"rope_type": "yarn", "rope_theta": 10000, "factor": 4, "attention_factor": 0})"}) {
    const auto result = rope_of(text);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_NE(result.error().message.find("config.json: rope_parameters."), std::string::npos)
        << result.error().message;
  }
}

}  // namespace
}  // namespace kv8::models
