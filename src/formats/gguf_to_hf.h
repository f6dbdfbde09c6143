// A GGUF file seen as a Hugging Face checkpoint: its metadata as a config.json, its tensors under the names
// that transformers uses. What differs between architectures is data: a row of a table each.
//
// The config has four keys that no config.json has, for what llama.cpp's converter does to the weights:
//   kv8_rope_interleaved    true: rows of Q and K are permuted, RoPE pairs are neighbours (2i, 2i + 1)
//   kv8_norm_weight_offset  what is to be added to norm weights (gemma: 0, the converter has added the 1)
//   kv8_rope_freq_factors   the name of a tensor by whose elements RoPE's frequencies are divided
//   kv8_attention_output_bias  whether the last product of attention has a bias; attention_bias speaks of Q,
//   K
//                              and V. Layer 0 says so for all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "formats/gguf.h"

namespace kv8::formats {

// Architectures that can be translated, as GGUF spells them.
std::vector<std::string_view> gguf_architectures();

// Errors: unsupported (another architecture, a split file, experts where the row has none), not_found and
// corrupt_data for metadata, naming file and key.
Expected<Json> hf_config_from_gguf(const Gguf& gguf);

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". Names that the architecture's table
// doesn't have stay as they are, so that no tensor vanishes.
std::string hf_name_from_gguf(std::string_view architecture, std::string_view name);

}  // namespace kv8::formats
