// A damaged tokenizer.json must be refused or work; any bytes and any ids may be given to a good one.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using kv8::text::Tokenizer;

constexpr std::string_view kGood = R"({
  "added_tokens": [{"id": 7, "content": "<s>", "special": true}, {"id": 8, "content": "ab", "normalized": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]},
  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated"},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
  "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": "_", "start": 1, "stop": 1}]},
  "model": {"type": "BPE", "unk_token": "?", "byte_fallback": true, "fuse_unk": true,
    "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "<0x41>": 4, "<0xC3>": 5, "_": 6, "_a": 9, "aa": 10},
    "merges": ["a b", ["_", "a"], "a a"]}})";

void require(bool condition) {
  if (!condition) std::abort();
}

// nullopt where the stream is an error.
std::optional<std::string> streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  kv8::text::StreamDecoder stream(tokenizer, true);
  std::string text;
  for (const int32_t id : ids) {
    const auto piece = stream.push(id);
    if (!piece) return std::nullopt;
    require(kv8::text::is_valid_utf8(*piece));
    text += *piece;
  }
  const auto rest = stream.flush();
  if (!rest) return std::nullopt;
  return text + *rest;
}

void use(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<int32_t> ids = tokenizer.encode(bytes).value_or(std::vector<int32_t>{});
  for (const char byte : bytes.substr(0, 64)) ids.push_back(static_cast<signed char>(byte));
  const auto whole = tokenizer.decode(ids, true);
  require(!whole || kv8::text::is_valid_utf8(*whole));
  require(streamed(tokenizer, ids) == (whole ? std::optional(*whole) : std::nullopt));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const Tokenizer kTokenizer = *Tokenizer::from_json_text(kGood, "good");
  use(kTokenizer, bytes);
  if (const auto tokenizer = Tokenizer::from_json_text(bytes, "fuzz")) {
    use(*tokenizer, bytes.substr(0, 256));
    use(*tokenizer, "Hello  w\xC3\xB6rld 123 ab\xFF <s>_a");
  }
  return 0;
}
