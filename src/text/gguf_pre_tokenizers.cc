#include "text/gguf_pre_tokenizers.h"

#include <algorithm>
#include <array>

#include "text/byte_level.h"

namespace kv8::text {

namespace {

using Patterns = std::span<const std::string_view>;

// Parts that several patterns share.
#define KV8_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define KV8_SPACES R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define KV8_SYMBOLS R"( ?[^\s\p{L}\p{N}]+)"
#define KV8_WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define KV8_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define KV8_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define KV8_CASED_WORD(suffix)                                                                  \
  R"([^\r\n\p{L}\p{N}]?)" KV8_UPPER "*" KV8_LOWER "+" suffix R"(|[^\r\n\p{L}\p{N}]?)" KV8_UPPER \
  "+" KV8_LOWER "*" suffix

constexpr std::array<std::string_view, 1> kGpt2 = {kGpt2Pattern};
constexpr std::array<std::string_view, 2> kDigitsGpt2 = {R"(\p{N})", kGpt2Pattern};
constexpr std::array<std::string_view, 4> kDefault = {R"([\p{P}$+<=>\^~|]+)", kGpt2Pattern, R"(\p{N}+)",
                                                      "[0-9][0-9][0-9]"};
constexpr std::array<std::string_view, 3> kFalcon = {R"([\p{P}$+<=>\^~|`]+)", kGpt2Pattern,
                                                     "[0-9][0-9][0-9]"};
constexpr std::array<std::string_view, 1> kLlama3 = {
    KV8_CONTRACTION "|" KV8_WORD R"(|\p{N}{1,3}|)" KV8_SYMBOLS R"([\r\n]*|)" KV8_SPACES};
constexpr std::array<std::string_view, 1> kQwen2 = {KV8_CONTRACTION "|" KV8_WORD R"(|\p{N}|)" KV8_SYMBOLS
                                                                    R"([\r\n]*|)" KV8_SPACES};
constexpr std::array<std::string_view, 1> kQwen35 = {
    KV8_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" KV8_SPACES};
constexpr std::array<std::string_view, 1> kGpt4o = {
    KV8_CASED_WORD(KV8_CONTRACTION "?") R"(|\p{N}{1,3}|)" KV8_SYMBOLS R"([\r\n/]*|)" KV8_SPACES};
constexpr std::array<std::string_view, 1> kTekken = {KV8_CASED_WORD("") R"(|\p{N}|)" KV8_SYMBOLS
                                                                        R"([\r\n/]*|)" KV8_SPACES};
constexpr std::array<std::string_view, 3> kDeepseek3 = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" KV8_SPACES};
constexpr std::array<std::string_view, 5> kDeepseekCoder = {
    R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)",
    R"(\p{N})"};
constexpr std::array<std::string_view, 1> kBloom = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
constexpr std::array<std::string_view, 2> kViking = {kBloom[0], R"(\p{N})"};

struct Named {
  std::string_view name;
  GgufPreTokenizer value;
};

constexpr GgufPreTokenizer plain(Patterns patterns) {
  return {patterns};
}
constexpr GgufPreTokenizer ignoring_merges(Patterns patterns, bool add_bos) {
  return {patterns, true, add_bos};
}
constexpr GgufPreTokenizer composed(Patterns patterns) {
  return {patterns, false, false, true};
}

constexpr auto kTable = std::to_array<Named>({
    {"default", plain(kDefault)},
    {"llama3", ignoring_merges(kLlama3, true)},
    {"llama-v3", ignoring_merges(kLlama3, true)},
    {"llama-bpe", ignoring_merges(kLlama3, true)},
    {"falcon3", ignoring_merges(kLlama3, true)},
    {"falcon-h1", ignoring_merges(kLlama3, true)},
    {"pixtral", ignoring_merges(kLlama3, true)},
    {"lfm2", ignoring_merges(kLlama3, true)},
    {"dbrx", plain(kLlama3)},
    {"smaug-bpe", plain(kLlama3)},
    {"glm4", plain(kLlama3)},
    {"chatglm-bpe", plain(kLlama3)},
    {"qwen2", composed(kQwen2)},
    {"deepseek-r1-qwen", composed(kQwen2)},
    {"qwen35", composed(kQwen35)},
    {"stablelm2", plain(kQwen2)},
    {"megrez", plain(kQwen2)},
    {"hunyuan", plain(kQwen2)},
    {"grok-2", plain(kQwen2)},
    {"gpt-4o", plain(kGpt4o)},
    {"llama4", plain(kGpt4o)},
    {"kanana2", plain(kGpt4o)},
    {"minimax-m2", plain(kGpt4o)},
    {"tekken", ignoring_merges(kTekken, true)},
    {"deepseek-v3", plain(kDeepseek3)},
    {"hunyuan-dense", plain(kDeepseek3)},
    {"deepseek-coder", plain(kDeepseekCoder)},
    {"smollm", plain(kDigitsGpt2)},
    {"starcoder", plain(kDigitsGpt2)},
    {"refact", plain(kDigitsGpt2)},
    {"command-r", plain(kDigitsGpt2)},
    {"codeshell", plain(kDigitsGpt2)},
    {"exaone", plain(kDigitsGpt2)},
    {"minerva-7b", plain(kDigitsGpt2)},
    {"mellum2", plain(kDigitsGpt2)},
    {"gpt-2", plain(kGpt2)},
    {"phi-2", plain(kGpt2)},
    {"mpt", plain(kGpt2)},
    {"olmo", plain(kGpt2)},
    {"jais", plain(kGpt2)},
    {"trillion", plain(kGpt2)},
    {"exaone4", plain(kGpt2)},
    {"gigachat", plain(kGpt2)},
    {"a.x-4.0", plain(kGpt2)},
    {"mellum", plain(kGpt2)},
    {"granite-docling", plain(kGpt2)},
    {"falcon", plain(kFalcon)},
    {"bloom", plain(kBloom)},
    {"poro-chat", plain(kBloom)},
    {"gpt3-finnish", plain(kBloom)},
    {"viking", plain(kViking)},
});

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  if (name.empty()) name = "default";
  const auto* found =
      std::find_if(kTable.begin(), kTable.end(), [&](const Named& row) { return row.name == name; });
  return found == kTable.end() ? nullptr : &found->value;
}

}  // namespace kv8::text
