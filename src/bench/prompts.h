// Prompts of random tokens, so that a measurement needs no text.
#pragma once

#include <cstdint>
#include <vector>

namespace kv8::bench {

// `length` tokens, each from 0 to vocab - 1 alike. The same on every machine for the same seed and stream;
// other streams of a seed share no prefix (but by chance), so that nothing kept from one prompt helps the
// next.
std::vector<int32_t> random_prompt(int64_t length, int64_t vocab, uint64_t seed, uint64_t stream);

// Powers of two from 256 to 131,072.
std::vector<int64_t> default_prompt_lengths();

// Lengths in ascending order, each once, those above `limit` cut to it.
std::vector<int64_t> clip_lengths(std::vector<int64_t> lengths, int64_t limit);

}  // namespace kv8::bench
