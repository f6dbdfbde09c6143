// GGUF files (versions 2 and 3, little-endian), memory-mapped: metadata and tensors are views into the map.
//
// Nothing in a file is believed before it is checked: counts against the bytes that are left, before anything
// is allocated; lengths, types, shapes, offsets, overlaps, duplicates. Errors name file and key or tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/mapped_file.h"
#include "core/tensor.h"

namespace kv8::formats {

enum class GgufType : uint32_t {  // the file's own codes
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string_view to_string(GgufType type);

// A value where it lies in the file: a scalar's bytes, a string's text, or the elements of an array (strings
// each with their 8-byte length before them).
struct GgufValue {
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array; never itself an array
  uint64_t count = 0;               // of an array
  std::span<const std::byte> bytes;
};

struct GgufTensor {
  TensorView view;              // shape in row-major order: the file's dimensions reversed
  std::string_view unreadable;  // the name of a type that kv8 doesn't read; view is then without data
};

// What the file says. Views point into the bytes that were parsed.
struct GgufContents {
  uint32_t version = 0;
  std::map<std::string_view, GgufValue> metadata;
  std::map<std::string_view, GgufTensor> tensors;
  std::vector<std::string_view> tensor_names;  // in the file's order
};

// Parses a whole file that lies in memory; `source` names it in messages. Memory and time are bounded by
// bytes.size().
Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view source);

class Gguf {
 public:
  static Expected<Gguf> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  uint32_t version() const { return contents_.version; }
  const std::map<std::string_view, GgufValue>& metadata() const { return contents_.metadata; }

  bool has(std::string_view key) const { return find_value(key) != nullptr; }
  const GgufValue* find_value(std::string_view key) const;  // nullptr if absent

  // Required values: not_found if absent, corrupt_data if of another type or outside [low, high].
  Expected<std::string_view> string(std::string_view key) const;
  Expected<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;  // any integer type
  Expected<double> number(std::string_view key) const;                               // any number; finite
  Expected<bool> boolean(std::string_view key) const;
  Expected<std::vector<std::string_view>> strings(std::string_view key) const;  // views into the file
  Expected<std::vector<int64_t>> integers(
      std::string_view key) const;                                  // any integer type, or bool as 0 and 1
  Expected<std::vector<float>> floats(std::string_view key) const;  // any number type

  // Optional values: `fallback` if absent, corrupt_data if of another type or outside the range.
  Expected<std::string_view> string_or(std::string_view key, std::string_view fallback) const;
  Expected<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t low, int64_t high) const;
  Expected<double> number_or(std::string_view key, double fallback) const;
  Expected<bool> boolean_or(std::string_view key, bool fallback) const;

  // Tensors. find: nullptr if absent, or of a type that kv8 doesn't read; tensor says which of the two.
  const std::vector<std::string_view>& names() const { return contents_.tensor_names; }
  bool has_tensor(std::string_view name) const { return contents_.tensors.contains(name); }
  const TensorView* find(std::string_view name) const;
  const Shape* shape(std::string_view name) const;           // of any type; nullptr if absent
  Expected<TensorView> tensor(std::string_view name) const;  // errors: not_found, unsupported

 private:
  Gguf(MappedFile file, GgufContents contents) : file_(std::move(file)), contents_(std::move(contents)) {}

  Expected<const GgufValue*> require(std::string_view key, std::string_view expected,
                                     bool right_type(GgufType), bool array) const;

  MappedFile file_;
  GgufContents contents_;
};

}  // namespace kv8::formats
