// safetensors files, memory-mapped: tensors are views into the map, nothing is copied.
//
// A file is an 8-byte little-endian header length, a JSON header (name -> dtype, shape, data_offsets), and
// the tensors' bytes, which fill the rest without holes or overlaps. Nothing in a file is believed before it
// is checked: any contradiction is a corrupt_data error that names file, tensor and field.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/mapped_file.h"
#include "core/tensor.h"

namespace kv8::formats {

// What the header says. Views point into the bytes that were parsed.
struct SafetensorsContents {
  std::map<std::string, TensorView, std::less<>> tensors;
  std::vector<std::string> names;  // in the order of the data
  std::map<std::string, std::string, std::less<>> metadata;
};

// Parses a whole file that lies in memory; `source` names it in messages. Memory and time are bounded by
// bytes.size().
Expected<SafetensorsContents> parse_safetensors(std::span<const std::byte> bytes, std::string_view source);

class Safetensors {
 public:
  static Expected<Safetensors> open(const std::filesystem::path& path);

  // nullptr if there is none. Valid as long as this object, or the one it was moved to, lives.
  const TensorView* find(std::string_view name) const;
  const std::vector<std::string>& names() const { return contents_.names; }  // in the order of the data
  const std::map<std::string, std::string, std::less<>>& metadata() const { return contents_.metadata; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  Safetensors(MappedFile file, SafetensorsContents contents)
      : file_(std::move(file)), contents_(std::move(contents)) {}

  MappedFile file_;
  SafetensorsContents contents_;
};

struct NamedTensor {
  std::string name;
  TensorView view;
};

// Writes a file that appears whole or not at all (a temporary file beside it, renamed at the end). The data
// lie by descending element size, so that all are aligned to their size. Errors: invalid_argument (a block
// type, a name given twice or reserved), io.
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// Names as safetensors spells them ("F8_E4M3"); empty for types that the format doesn't have.
std::string_view safetensors_dtype_name(DType dtype);
std::optional<DType> dtype_from_safetensors_name(std::string_view name);

}  // namespace kv8::formats
