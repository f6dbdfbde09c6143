// The stages a decoder is made of. Each says what it waits for.
#pragma once

#include <memory>
#include <string>

#include "text/decoder.h"
#include "text/normalizer.h"

namespace kv8::text {

// The byte alphabet back to bytes; a text that isn't in it stands for itself. Makes one token of all. Waits
// for the rest of a UTF-8 character; what never becomes one is U+FFFD.
std::unique_ptr<DecoderStage> byte_level_stage();

// Tokens <0xNN> to bytes. A run of them waits for its end: if it isn't valid UTF-8 as a whole, each byte is
// U+FFFD.
std::unique_ptr<DecoderStage> byte_fallback_stage();

// Makes one token of all. Waits for nothing.
std::unique_ptr<DecoderStage> fuse_stage();

// Makes one token of all, and waits for the end of the text.
std::unique_ptr<DecoderStage> hold_stage();

// Replaces within a fragment.
std::unique_ptr<DecoderStage> replace_stage(std::shared_ptr<const Pattern> pattern, std::string content);

// Takes up to `start` and `stop` of the given character off each token's ends. Waits behind up to `stop` of
// them.
std::unique_ptr<DecoderStage> strip_stage(std::string character, size_t start, size_t stop);

// The replacement back to a space; in the first token to nothing if drop_first.
std::unique_ptr<DecoderStage> metaspace_stage(std::string replacement, bool drop_first);

// A space between tokens.
std::unique_ptr<DecoderStage> join_stage();

}  // namespace kv8::text
