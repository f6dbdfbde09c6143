// The decode loop and the engine's clauses (docs/engine.md), on a tiny model of the fixtures.
#include "engine/generate.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "fixtures.h"

namespace kv8::engine {
namespace {

std::unique_ptr<Engine> tiny(EngineOptions options = {}) {
  options.threads = 1;  // a tiny model: waking a second thread costs more than it does
  auto engine = Engine::create((test::fixtures() / "models/llama").string(), options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return std::move(*engine);
}

GenerationRequest request_of(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

constexpr int32_t kVocabulary = 256;  // any model has as many tokens

std::vector<int32_t> some_prompt(int32_t count) {
  std::vector<int32_t> prompt(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) prompt[static_cast<size_t>(i)] = (i * 37 + 11) % kVocabulary;
  return prompt;
}

TEST(Generate, SameSeedSameAnswerWhateverTheChunks) {
  EngineOptions small_chunks;
  small_chunks.prefill_chunk = 7;
  const auto a = tiny();
  const auto b = tiny(small_chunks);
  auto request = request_of(some_prompt(150), 20);
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 5;
  const auto first = generate(*a, request).value();
  EXPECT_EQ(first.tokens.size(), 20U);
  EXPECT_EQ(first.tokens, generate(*a, request)->tokens);
  EXPECT_EQ(first.tokens, generate(*b, request)->tokens);
  request.sampling.seed = 6;
  EXPECT_NE(first.tokens, generate(*a, request)->tokens);
}

TEST(Generate, EndsWhereTheContextEnds) {
  EngineOptions options;
  options.max_model_len = 40;
  const auto engine = tiny(options);
  const auto result = generate(*engine, request_of(some_prompt(30), 0)).value();
  EXPECT_EQ(result.tokens.size(), 10U);
  EXPECT_EQ(result.finish, FinishReason::length);
  const auto full = generate(*engine, request_of(some_prompt(40), 5)).value();
  EXPECT_TRUE(full.tokens.empty());
  const auto too_long = generate(*engine, request_of(some_prompt(41), 5));
  ASSERT_FALSE(too_long.has_value());
  EXPECT_NE(too_long.error().message.find("--max-model-len"), std::string::npos) << too_long.error().message;
}

// A model whose generation_config.json ends an answer at a token that it is known to give.
TEST(Generate, StopsAtTheEndOfSequenceToken) {
  auto request = request_of(some_prompt(20), 12);
  const auto all = generate(*tiny(), request)->tokens;
  ASSERT_EQ(all.size(), 12U);
  const int32_t end = all[7];
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("kv8_end_of_sequence_{}", getpid());
  std::filesystem::create_directories(folder);
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(test::fixtures() / "models/llama" / file, folder / file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::ofstream(folder / "generation_config.json") << fmt::format(R"({{"eos_token_id": [{}]}})", end);
  EngineOptions options;
  options.threads = 1;
  const auto engine = Engine::create(folder.string(), options).value();
  std::filesystem::remove_all(folder);
  EXPECT_EQ(engine->eos_ids().front(), end);
  const auto first = std::ranges::find_first_of(all, engine->eos_ids());
  EXPECT_EQ(generate(*engine, request)->tokens, all);  // ignore_eos
  request.ignore_eos = false;
  const auto stopped = generate(*engine, request).value();
  EXPECT_EQ(stopped.tokens, std::vector<int32_t>(all.begin(), first));
  EXPECT_EQ(stopped.finish, FinishReason::stop);
}

TEST(Generate, CancelledIsAResult) {
  EngineOptions options;
  options.prefill_chunk = 10;
  const auto engine = tiny(options);
  std::atomic<bool> cancel{false};
  auto request = request_of(some_prompt(100), 50);
  request.cancel = &cancel;
  GenerationHooks hooks;
  int chunks = 0;
  hooks.on_prefill = [&](int64_t, int64_t) { cancel = ++chunks == 3; };
  const auto result = generate(*engine, request, hooks).value();
  EXPECT_EQ(result.finish, FinishReason::cancelled);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(chunks, 3);
}

TEST(Generate, RefusesWhatCannotRun) {
  const auto engine = tiny();
  EXPECT_FALSE(generate(*engine, request_of({}, 5)).has_value());
  EXPECT_FALSE(
      generate(*engine, request_of({static_cast<int32_t>(engine->config().vocab_size)}, 5)).has_value());
  EXPECT_FALSE(generate(*engine, request_of({-1}, 5)).has_value());
  auto request = request_of({1}, 5);
  request.sampling.top_p = 0;
  EXPECT_FALSE(generate(*engine, request).has_value());
}

// docs/engine.md, E3 and E8: whatever ended a sequence, its pages come back; a context of the full length
// then fits again.
TEST(Engine, PagesComeBack) {
  EngineOptions options;
  options.max_model_len = 300;
  const auto engine = tiny(options);
  for (int round = 0; round < 3; ++round) {
    Sequence sequence = engine->new_sequence();
    ASSERT_TRUE(engine->append(sequence, some_prompt(300)).has_value());
    EXPECT_EQ(sequence.held_pages(0), 3);
    Sequence second = engine->new_sequence();
    const auto refused = engine->append(second, some_prompt(1));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
    EXPECT_EQ(second.length(), 0);  // docs/engine.md, E9
  }
}

// Two sequences in one engine don't see each other's keys.
TEST(Engine, SequencesAreApart) {
  EngineOptions options;
  options.max_model_len = 256;
  options.kv_cache_dtype = kv_cache::KvFormat::f32;
  const auto engine = tiny(options);
  const auto logits_of = [&](Sequence& sequence, std::span<const int32_t> tokens) {
    const auto logits = engine->append(sequence, tokens).value();
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto tokens = some_prompt(100);
  std::vector<float> alone;
  {
    Sequence sequence = engine->new_sequence();
    alone = logits_of(sequence, tokens);
  }
  Sequence other = engine->new_sequence();
  const std::vector<int32_t> different(60, 7);
  logits_of(other, different);
  Sequence sequence = engine->new_sequence();
  logits_of(sequence, std::span(tokens).first(40));
  logits_of(other, std::span(different).first(3));
  const auto beside = logits_of(sequence, std::span(tokens).subspan(40));
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(alone[i], beside[i], 1e-4) << i;
}

TEST(Engine, OptionsThatMakeNoSenseAreNamed) {
  const std::string model = (test::fixtures() / "models/llama").string();
  const auto refused = [&](const EngineOptions& options, const char* name) {
    const auto engine = Engine::create(model, options);
    ASSERT_FALSE(engine.has_value()) << name;
    EXPECT_NE(engine.error().message.find(name), std::string::npos) << engine.error().message;
  };
  EngineOptions options;
  options.threads = -1;
  refused(options, "threads");
  options = {};
  options.prefill_chunk = 0;
  refused(options, "prefill-chunk");
  for (const int64_t tokens : {int64_t{-1}, int64_t{1} << 40, (int64_t{1} << 40) + 1, int64_t{1} << 62}) {
    options = {};
    options.max_model_len = tokens;
    refused(options, "max-model-len");
  }
  options = {};
  options.skip_layers = fmt::format("{}", tiny()->config().layers.size());
  refused(options, "there is no layer");
  options = {};
  options.kv_scales = "/nowhere/kv_scales.safetensors";
  refused(options, "/nowhere/kv_scales.safetensors");
  EXPECT_FALSE(Engine::create("/nowhere", {}).has_value());
}

TEST(Engine, MoreThreadsThanCanRunAreNotStarted) {
  EngineOptions options;
  options.threads = 4000;
  const auto engine = Engine::create((test::fixtures() / "models/llama").string(), options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  EXPECT_NE(fmt::format("{}", fmt::join((*engine)->warnings(), "\n")).find("4000 threads"),
            std::string::npos);
}

// Layers kept in BF16 change what a token costs and nothing else that is visible.
TEST(Engine, SkippedLayersStayInBf16) {
  EngineOptions options;
  const auto layers = tiny()->cache_plan().layers;
  ASSERT_GE(layers.size(), 2U);
  const size_t last = layers.size() - 1;
  options.skip_layers = fmt::format("0,{}", last);
  const auto engine = tiny(options);
  int64_t bytes = 0;
  for (size_t index = 0; index < layers.size(); ++index) {
    const bool skipped = index == 0 || index == last;
    const auto format = skipped ? kv_cache::KvFormat::bf16 : kv_cache::KvFormat::fp8;
    EXPECT_EQ(engine->cache_plan().layers[index].format, format) << index;
    bytes +=
        int64_t{layers[index].kv_heads} * (layers[index].k_dim + layers[index].v_dim) * (skipped ? 2 : 1);
  }
  EXPECT_EQ(engine->cache_plan().token_bytes(), bytes);
  EXPECT_TRUE(generate(*engine, request_of(some_prompt(10), 3)).has_value());
}

}  // namespace
}  // namespace kv8::engine
