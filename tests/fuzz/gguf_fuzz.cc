// Any bytes as a GGUF file: parsed, every value and tensor read through, every accessor tried on every key,
// and the whole taken for a model.
#include <limits>

#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kv8::formats::Gguf;
  const auto parsed = kv8::formats::parse_gguf(kv8::fuzz::bytes(data, size), "fuzz");
  if (!parsed) return 0;
  for (const auto& [key, value] : parsed->metadata) kv8::fuzz::read_through(value.bytes);
  for (const auto& [name, tensor] : parsed->tensors) {
    kv8::fuzz::read_through({tensor.view.data, tensor.view.bytes});
  }

  const kv8::fuzz::MemoryFile file(data, size);
  const auto opened = Gguf::open(file.path());
  kv8::fuzz::require(opened.has_value());
  for (const auto& [key, value] : opened->metadata()) {
    constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
    constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
    const bool read = opened->string(key).has_value() || opened->integer(key, kLow, kHigh).has_value() ||
                      opened->number(key).has_value() || opened->boolean(key).has_value() ||
                      opened->strings(key).has_value() || opened->integers(key).has_value() ||
                      opened->floats(key).has_value();
    kv8::fuzz::require(read || value.type == kv8::formats::GgufType::f32 ||
                       value.type == kv8::formats::GgufType::f64 ||
                       value.type == kv8::formats::GgufType::array);
  }
  const auto model = kv8::formats::Checkpoint::open(file.path());
  if (!model) return 0;
  for (const std::string_view name : model->names()) {
    if (const kv8::TensorView* view = model->find(name)) kv8::fuzz::read_through({view->data, view->bytes});
  }
  return 0;
}
