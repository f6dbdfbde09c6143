// The JSON header of a safetensors file, read event by event: a parsed document would hide duplicated names,
// and would be built before anything about it is known to be right.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace kv8::formats {

struct TensorEntry {
  std::string name;
  std::string dtype;           // as spelt in the file
  std::vector<int64_t> shape;  // none negative
  uint64_t begin = 0;          // bytes from the start of the data
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the header's order; names may be there twice
  std::map<std::string, std::string, std::less<>> metadata;
};

// Errors: corrupt_data for JSON that is broken, or of any structure but the format's.
Expected<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::string_view source);

}  // namespace kv8::formats
