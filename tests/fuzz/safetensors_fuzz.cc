// Any bytes as a safetensors file: parsed, every tensor read through, KV scales looked for.
#include <vector>

#include "formats/kv_scales.h"
#include "formats/safetensors.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = kv8::formats::parse_safetensors(kv8::fuzz::bytes(data, size), "fuzz");
  if (!parsed) return 0;
  std::vector<kv8::formats::NamedTensor> tensors;
  for (const std::string& name : parsed->names) {
    const kv8::TensorView& view = parsed->tensors.at(name);
    kv8::fuzz::read_through({view.data, view.bytes});
    tensors.push_back({name, view});
  }
  const std::vector<int> kv_heads = {2, 0, 4};
  const auto scales = kv8::formats::bind_kv_scales(tensors, kv_heads, "fuzz");
  kv8::fuzz::require(!scales || scales->layers.size() == kv_heads.size());
  return 0;
}
