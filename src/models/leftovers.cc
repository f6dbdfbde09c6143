#include "models/leftovers.h"

#include <algorithm>

#include "formats/kv_scales.h"

namespace kv8::models {

namespace {

constexpr Leftover kOfAnyModel[] = {
    // Buffers: they follow from the config.
    {Leftover::Where::end, "rotary_emb.inv_freq"},
    {Leftover::Where::end, "rotary_emb.cos_cached"},
    {Leftover::Where::end, "rotary_emb.sin_cached"},
    {Leftover::Where::end, "attn_rot_embd.weight"},
    {Leftover::Where::end, "self_attn.bias"},  // a causal mask
    {Leftover::Where::end, "masked_bias"},
    // Scales of activations: kv8 computes with the activations as they are.
    {Leftover::Where::end, "input_scale"},
};

bool matches(std::string_view name, const Leftover& leftover) {
  const std::string_view text = leftover.text;
  if (leftover.where == Leftover::Where::begin) return name.starts_with(text);
  return name == text || (name.ends_with(text) && name[name.size() - text.size() - 1] == '.');
}

}  // namespace

bool is_leftover(std::string_view name, std::span<const Leftover> family) {
  const auto matches_name = [name](const Leftover& leftover) { return matches(name, leftover); };
  return std::ranges::any_of(kOfAnyModel, matches_name) || std::ranges::any_of(family, matches_name) ||
         formats::is_kv_scale_name(name);
}

}  // namespace kv8::models
