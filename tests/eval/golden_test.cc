// Every family folder of the fixtures against transformers' logits and greedy tokens.
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

bool has_tensor(const std::string& name, const char* tensor) {
  return formats::Safetensors::open(golden_of(name)).value().find(tensor) != nullptr;
}

// Golden logits of the model with a cache that rounds nothing.
const char* unrounded(const std::string& name) {
  return has_tensor(name, "logits_unquantized_kv") ? "logits_unquantized_kv" : "logits";
}

Expected<GoldenReport> check_model(const std::string& model, const engine::EngineOptions& options,
                                   const std::string& golden_file, const char* tensor,
                                   const GoldenBounds& bounds) {
  KV8_ASSIGN_OR_RETURN(const auto engine, engine::Engine::create(model, options));
  return check_golden(*engine, golden_file, tensor, bounds);
}

// False, with the reason printed, where the family is one that kv8 doesn't have yet.
bool expect_golden(const std::string& name, const engine::EngineOptions& options, const char* tensor,
                   const char* what) {
  const GoldenBounds bounds = default_bounds(options.kv_cache_dtype);
  const auto report = check_model(folder_of(name), options, golden_of(name), tensor, bounds);
  if (!report) {
    EXPECT_EQ(report.error().code, ErrorCode::unsupported) << name << ": " << report.error().message;
    std::printf("[  REFUSED ] %s: %s\n", name.c_str(), report.error().message.c_str());
    return false;
  }
  EXPECT_TRUE(report->passed) << name << " " << tensor << " " << what;
  EXPECT_LE(report->max_error, bounds.logit_error) << name << " " << tensor << " " << what;
  EXPECT_LE(report->rms_error, bounds.rms_error) << name << " " << tensor << " " << what;
  EXPECT_EQ(report->greedy_failures, 0) << name << " " << tensor << " " << what;
  std::printf("[  GOLDEN  ] %-20s %-22s %-14s max %.1e rms %.1e KL %.1e greedy %d/%d\n", name.c_str(), tensor,
              what, report->max_error, report->rms_error, report->mean_kl,
              static_cast<int>(report->greedy_agreeing), static_cast<int>(report->greedy_tokens));
  return true;
}

class Golden : public testing::TestWithParam<std::string> {};

// The model itself: nothing of the cache is rounded.
TEST_P(Golden, LogitsAndGreedyTokens) {
  if (!expect_golden(GetParam(), exact_cache(), unrounded(GetParam()), "f32 cache"))
    GTEST_SKIP() << "family not supported";
}

// Any chunk size gives the same, and exact attention (float64) agrees with the fast one.
TEST_P(Golden, ChunksAndExactAttention) {
  for (const int64_t chunk : {1, 7, 64}) {
    auto options = exact_cache();
    options.prefill_chunk = chunk;
    options.accumulate = chunk == 7 ? attention::Accumulate::exact : attention::Accumulate::f32;
    if (!expect_golden(GetParam(), options, unrounded(GetParam()),
                       chunk == 7 ? "exact, chunk 7" : "chunks")) {
      GTEST_SKIP() << "family not supported";
    }
  }
}

// Checkpoints with calibrated scales, the cache in FP8, Q and P unquantised; and the same with the scales set
// aside.
TEST_P(Golden, Fp8CacheWithScales) {
  if (!has_tensor(GetParam(), "logits_scale_one")) GTEST_SKIP() << "no golden logits of an FP8 cache";
  for (const auto mode : {attention::Accumulate::f32, attention::Accumulate::exact}) {
    const char* what = mode == attention::Accumulate::exact ? "fp8 exact" : "fp8 f32";
    engine::EngineOptions options;
    options.kv_cache_dtype = kv_cache::KvFormat::fp8;
    options.accumulate = mode;
    ASSERT_TRUE(expect_golden(GetParam(), options, "logits", what));
    options.kv_scales = "1.0";
    ASSERT_TRUE(expect_golden(GetParam(), options, "logits_scale_one", what));
    // The scales are not ignored: the other golden logits are far off.
    const auto other = check_model(folder_of(GetParam()), options, golden_of(GetParam()), "logits",
                                   default_bounds(options.kv_cache_dtype));
    EXPECT_FALSE(other->passed) << GetParam();
    EXPECT_GT(other->rms_error, 5e-3) << GetParam();
  }
}

// The same models as a GGUF file alone: its own config, names, permuted rows and shifted norms.
TEST(GoldenGguf, EveryFileGivesItsFamilysLogits) {
  const auto gguf_folder = test::fixtures() / "gguf";
  if (!std::filesystem::exists(gguf_folder)) GTEST_SKIP() << "no GGUF fixtures beside these model fixtures";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(gguf_folder)) {
    const std::string family = entry.path().stem().string();
    if (entry.path().extension() != ".gguf" || !std::filesystem::exists(golden_of(family))) continue;
    ++files;
    const auto report = check_model(entry.path().string(), exact_cache(), golden_of(family),
                                    unrounded(family), default_bounds(kv_cache::KvFormat::f32));
    ASSERT_TRUE(report.has_value()) << report.error().message;
    EXPECT_TRUE(report->passed) << family << " max " << report->max_error;
    std::printf("[  GOLDEN  ] %-20s max %.1e greedy %d/%d\n", (family + ".gguf").c_str(), report->max_error,
                static_cast<int>(report->greedy_agreeing), static_cast<int>(report->greedy_tokens));
  }
  EXPECT_GT(files, 0);
}

// Without scales of its own, an FP8 cache uses 1.0 and says so once.
TEST(GoldenScales, MissingScalesAreTold) {
  for (const char* name : {"llama", "llama_fp8_kv_head"}) {
    if (!std::filesystem::exists(folder_of(name))) GTEST_SKIP() << "no fixture " << name;
  }
  engine::EngineOptions options;
  options.kv_cache_dtype = kv_cache::KvFormat::fp8;
  const auto engine = engine::Engine::create(folder_of("llama"), options).value();
  ASSERT_EQ(engine->warnings().size(), 1U);
  EXPECT_NE(engine->warnings()[0].find("no KV scales"), std::string::npos);
  const auto calibrated = engine::Engine::create(folder_of("llama_fp8_kv_head"), options).value();
  EXPECT_TRUE(calibrated->warnings().empty());
  EXPECT_EQ(calibrated->scales_description(), "calibrated");
}

// The same scales under the names that vLLM's own attention layer saves, and a decoder inside a wrapper: the
// logits are the same to the last bit.
TEST(GoldenScales, OtherNamesGiveTheSameLogits) {
  const std::filesystem::path original = folder_of("llama_fp8_kv_tensor");
  if (!std::filesystem::exists(original)) GTEST_SKIP() << "no such fixture";
  const auto logits_of = [](const std::string& model) {
    std::vector<float> all;
    const auto engine = engine::Engine::create(model, {}).value();
    EXPECT_EQ(engine->scales_description(), "calibrated");
    engine::Sequence sequence = engine->new_sequence();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 40; ++i)
      tokens.push_back((i * 37 + 11) % static_cast<int32_t>(engine->config().vocab_size));
    EXPECT_TRUE(engine->append_with_logits(sequence, tokens, [&](int64_t, std::span<const float> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
    }));
    return all;
  };
  const std::vector<float> expected = logits_of(original);
  const auto source = formats::Safetensors::open(original / "model.safetensors").value();
  const std::pair<const char*, const char*> layouts[] = {{"model.", "self_attn.attn."},
                                                         {"model.language_model.", "self_attn.attn._"},
                                                         {"language_model.model.", "self_attn.qkv_proj."},
                                                         {"", "self_attn."}};
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("kv8_scale_names_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(original / "config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  for (const auto& [wrapper, attention] : layouts) {
    std::vector<formats::NamedTensor> tensors;
    int scales = 0;
    for (std::string name : source.names()) {
      const TensorView view = *source.find(name);
      for (const char* scale : {"self_attn.k_scale", "self_attn.v_scale"}) {
        if (!name.ends_with(scale)) continue;
        name.replace(name.rfind("self_attn."), std::string("self_attn.").size(), attention);
        ++scales;
      }
      if (name.starts_with("model.")) name.replace(0, std::string("model.").size(), wrapper);
      tensors.push_back({name, view});
    }
    ASSERT_GT(scales, 0);
    ASSERT_TRUE(formats::write_safetensors(folder / "model.safetensors", tensors));
    EXPECT_EQ(logits_of(folder), expected) << wrapper << " " << attention;
  }
  std::filesystem::remove_all(folder);
}

// A bound that can't be met fails: the check is able to.
TEST(GoldenBounds, TooTightFails) {
  const auto passed = [](const GoldenBounds& bounds) {
    return check_model(folder_of("llama"), exact_cache(), golden_of("llama"), "logits", bounds)->passed;
  };
  GoldenBounds bounds;
  EXPECT_TRUE(passed(bounds));
  bounds.logit_error = 1e-9;
  EXPECT_FALSE(passed(bounds));
  bounds = {};
  bounds.rms_error = 1e-9;
  EXPECT_FALSE(passed(bounds));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Golden, testing::ValuesIn(test::model_fixtures()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kv8::eval
