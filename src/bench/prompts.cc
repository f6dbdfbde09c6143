#include "bench/prompts.h"

#include <algorithm>

#include "core/check.h"

namespace kv8::bench {

namespace {

// SplitMix64 (Steele, Lea, Flood 2014): a counter, mixed.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<int32_t> random_prompt(int64_t length, int64_t vocab, uint64_t seed, uint64_t stream) {
  KV8_CHECK(length >= 0 && vocab > 0 && vocab <= INT32_MAX, "{} tokens of {}", length, vocab);
  const uint64_t base = mix(mix(seed) + stream);
  std::vector<int32_t> tokens(static_cast<size_t>(length));
  for (size_t i = 0; i < tokens.size(); ++i) {
    // The upper 32 bits, scaled: uniform to 2^-32.
    tokens[i] = static_cast<int32_t>(((mix(base + i) >> 32) * static_cast<uint64_t>(vocab)) >> 32);
  }
  return tokens;
}

std::vector<int64_t> default_prompt_lengths() {
  std::vector<int64_t> lengths;
  for (int64_t length = 256; length <= 131'072; length *= 2) lengths.push_back(length);
  return lengths;
}

std::vector<int64_t> clip_lengths(std::vector<int64_t> lengths, int64_t limit) {
  for (int64_t& length : lengths) length = std::min(length, limit);
  std::ranges::sort(lengths);
  const auto rest = std::ranges::unique(lengths);
  lengths.erase(rest.begin(), rest.end());
  return lengths;
}

}  // namespace kv8::bench
