// Every family folder of the fixtures against transformers' logits and greedy tokens.
#include <gtest/gtest.h>

#include "eval/golden_check.h"
#include "fixtures.h"
#include "formats/safetensors.h"

namespace kv8::eval {
namespace {

std::string folder_of(const std::string& name) {
  return (test::fixtures() / "models" / name).string();
}
std::string golden_of(const std::string& name) {
  return folder_of(name) + "/golden.safetensors";
}

engine::EngineOptions exact_cache() {
  engine::EngineOptions options;
  options.kv_cache_dtype = kv_cache::KvFormat::f32;
  return options;
}

// Null, with the reason printed, where the family is one that kv8 doesn't have yet.
std::unique_ptr<engine::Engine> load(const std::string& name, const engine::EngineOptions& options) {
  auto engine = engine::Engine::create(folder_of(name), options);
  if (engine) return std::move(*engine);
  EXPECT_EQ(engine.error().code, ErrorCode::unsupported) << name << ": " << engine.error().message;
  std::printf("[  REFUSED ] %s: %s\n", name.c_str(), engine.error().message.c_str());
  return nullptr;
}

bool has_tensor(const std::string& name, const char* tensor) {
  return formats::Safetensors::open(golden_of(name)).value().find(tensor) != nullptr;
}

void expect_golden(engine::Engine& engine, const std::string& name, const char* tensor, const char* what) {
  const auto report = check_golden(engine, golden_of(name), tensor, {});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_TRUE(report->passed) << name << " " << tensor << " " << what;
  EXPECT_LE(report->max_error, 2e-3) << name << " " << tensor << " " << what;
  EXPECT_EQ(report->greedy_failures, 0) << name << " " << tensor << " " << what;
  EXPECT_EQ(report->greedy_tokens, 24);
  std::printf("[  GOLDEN  ] %-22s %-22s %-14s max %.1e rms %.1e KL %.1e greedy %d/%d\n", name.c_str(), tensor,
              what, report->max_error, report->rms_error, report->mean_kl,
              static_cast<int>(report->greedy_agreeing), static_cast<int>(report->greedy_tokens));
}

class Golden : public testing::TestWithParam<std::string> {};

// The model itself: nothing of the cache is rounded.
TEST_P(Golden, LogitsAndGreedyTokens) {
  const auto engine = load(GetParam(), exact_cache());
  if (engine == nullptr) GTEST_SKIP() << "family not supported";
  const bool rounded = has_tensor(GetParam(), "logits_unquantized_kv");
  expect_golden(*engine, GetParam(), rounded ? "logits_unquantized_kv" : "logits", "f32 cache");
}

// REQUIREMENTS E3: any chunk size gives the same, and exact attention (float64) agrees with the fast one.
TEST_P(Golden, ChunksAndExactAttention) {
  const bool rounded = has_tensor(GetParam(), "logits_unquantized_kv");
  for (const int64_t chunk : {1, 7, 64}) {
    auto options = exact_cache();
    options.prefill_chunk = chunk;
    options.accumulate = chunk == 7 ? attention::Accumulate::exact : attention::Accumulate::f32;
    const auto engine = load(GetParam(), options);
    if (engine == nullptr) GTEST_SKIP() << "family not supported";
    expect_golden(*engine, GetParam(), rounded ? "logits_unquantized_kv" : "logits",
                  chunk == 7 ? "exact, chunk 7" : "chunks");
  }
}

// Checkpoints with calibrated scales, the cache in FP8, Q and P unquantised; and the same with the scales set
// aside.
TEST_P(Golden, Fp8CacheWithScales) {
  if (!has_tensor(GetParam(), "logits_scale_one")) GTEST_SKIP() << "no golden logits of an FP8 cache";
  for (const auto mode : {attention::Accumulate::f32, attention::Accumulate::exact}) {
    engine::EngineOptions options;
    options.kv_cache_dtype = kv_cache::KvFormat::fp8;
    options.accumulate = mode;
    const auto calibrated = load(GetParam(), options);
    if (calibrated == nullptr) GTEST_SKIP() << "family not supported";
    EXPECT_EQ(calibrated->scales_description(), "calibrated");
    EXPECT_TRUE(calibrated->warnings().empty());
    expect_golden(*calibrated, GetParam(), "logits",
                  mode == attention::Accumulate::exact ? "fp8 exact" : "fp8 f32");
    options.kv_scales = "1.0";
    const auto scale_one = load(GetParam(), options);
    const auto report = check_golden(*scale_one, golden_of(GetParam()), "logits_scale_one", {}).value();
    EXPECT_LE(report.max_error, 2e-3) << GetParam();
    // The scales are not ignored: the other golden logits are far off.
    EXPECT_GT(check_golden(*scale_one, golden_of(GetParam()), "logits", {})->max_error, 1e-2) << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Golden, testing::ValuesIn(test::model_fixtures()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kv8::eval
