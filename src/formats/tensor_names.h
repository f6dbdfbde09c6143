// Where checkpoints put the tensors of the decoder: on their own, or as the text part of a multimodal model.
// The same list serves weights and KV scales.
#pragma once

#include <array>
#include <string_view>

namespace kv8::formats {

inline constexpr std::array<std::string_view, 4> kDecoderPrefixes = {
    "model.", "model.language_model.", "language_model.model.",
    "",  // saved from the inner model
};

}  // namespace kv8::formats
