#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "core/json.h"
#include "formats/safetensors_header.h"

namespace kv8::formats {

namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own reader

struct DTypeName {
  DType dtype;
  std::string_view name;
};

constexpr std::array<DTypeName, 15> kDTypeNames = {{
    {DType::f64, "F64"},
    {DType::f32, "F32"},
    {DType::f16, "F16"},
    {DType::bf16, "BF16"},
    {DType::f8_e4m3, "F8_E4M3"},
    {DType::f8_e5m2, "F8_E5M2"},
    {DType::i64, "I64"},
    {DType::i32, "I32"},
    {DType::i16, "I16"},
    {DType::i8, "I8"},
    {DType::u64, "U64"},
    {DType::u32, "U32"},
    {DType::u16, "U16"},
    {DType::u8, "U8"},
    {DType::boolean, "BOOL"},
}};

// A range of data that is no tensor's, or more than one's: found by walking the tensors in order of their
// data.
Status check_tiling(const std::vector<const TensorEntry*>& by_offset, uint64_t data_bytes,
                    std::string_view source) {
  uint64_t expected = 0;
  std::string_view previous = "the header";
  for (const TensorEntry* entry : by_offset) {
    if (entry->begin < expected) {
      return make_error(ErrorCode::corrupt_data,
                        "{}: {}: data_offsets: [{}, {}] overlaps {}, which ends at {}", source, entry->name,
                        entry->begin, entry->end, previous, expected);
    }
    if (entry->begin > expected) {
      return make_error(ErrorCode::corrupt_data,
                        "{}: {}: data_offsets: begins at {}, but {} ends at {}; the format allows no holes",
                        source, entry->name, entry->begin, previous, expected);
    }
    expected = entry->end;
    previous = entry->name;
  }
  if (expected != data_bytes) {
    return make_error(ErrorCode::corrupt_data,
                      "{}: {} bytes of data follow the header, but the tensors end at {}", source, data_bytes,
                      expected);
  }
  return {};
}

Expected<TensorView> make_view(const TensorEntry& entry, std::span<const std::byte> data,
                               std::string_view source) {
  const auto dtype = dtype_from_safetensors_name(entry.dtype);
  if (!dtype) {
    return make_error(ErrorCode::unsupported,
                      "{}: {}: dtype: '{}' is not one of F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 "
                      "U32 U16 U8 BOOL",
                      source, entry.name, entry.dtype);
  }
  if (entry.shape.size() > static_cast<size_t>(kMaxRank)) {
    return make_error(ErrorCode::unsupported, "{}: {}: shape: {} dimensions, at most {} are supported",
                      source, entry.name, entry.shape.size(), kMaxRank);
  }
  TensorView view;
  view.dtype = *dtype;
  view.shape = Shape::from(entry.shape);
  int64_t bytes = dtype_info(*dtype).block_bytes;
  for (const int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) {
      return make_error(ErrorCode::corrupt_data, "{}: {}: shape: {} of {} is more than 2^63 bytes", source,
                        entry.name, view.shape.to_string(), entry.dtype);
    }
  }
  if (entry.begin > entry.end || entry.end > data.size()) {
    return make_error(ErrorCode::corrupt_data,
                      "{}: {}: data_offsets: [{}, {}] is not a range within the {} bytes of data", source,
                      entry.name, entry.begin, entry.end, data.size());
  }
  if (entry.end - entry.begin != static_cast<uint64_t>(bytes)) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: data_offsets: {} bytes, but {} of {} needs {}",
                      source, entry.name, entry.end - entry.begin, view.shape.to_string(), entry.dtype,
                      bytes);
  }
  view.data = data.data() + entry.begin;
  view.bytes = static_cast<size_t>(bytes);
  return view;
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  const auto it = std::ranges::find(kDTypeNames, dtype, &DTypeName::dtype);
  return it == kDTypeNames.end() ? std::string_view() : it->name;
}

std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  const auto it = std::ranges::find(kDTypeNames, name, &DTypeName::name);
  if (it == kDTypeNames.end()) return std::nullopt;
  return it->dtype;
}

Expected<SafetensorsContents> parse_safetensors(std::span<const std::byte> bytes, std::string_view source) {
  if (bytes.size() < kLengthBytes) {
    return make_error(ErrorCode::corrupt_data, "{}: {} bytes are too few for a safetensors file", source,
                      bytes.size());
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kLengthBytes) {
    return make_error(
        ErrorCode::corrupt_data,
        "{}: header length: {}, but the file has {} bytes after it and a header at most {}; truncated, or "
        "not a safetensors file",
        source, header_bytes, bytes.size() - kLengthBytes, kMaxHeaderBytes);
  }
  const auto header = bytes.subspan(kLengthBytes, header_bytes);
  const auto data = bytes.subspan(kLengthBytes + header_bytes);
  KV8_ASSIGN_OR_RETURN(
      SafetensorsHeader parsed,
      parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()}, source));

  SafetensorsContents contents;
  contents.metadata = std::move(parsed.metadata);
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& entry : parsed.tensors) {
    KV8_ASSIGN_OR_RETURN(const TensorView view, make_view(entry, data, source));
    if (!contents.tensors.emplace(entry.name, view).second) {
      return make_error(ErrorCode::corrupt_data, "{}: {}: the header has this tensor twice", source,
                        entry.name);
    }
    by_offset.push_back(&entry);
  }
  std::ranges::stable_sort(by_offset, [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  KV8_RETURN_IF_ERROR(check_tiling(by_offset, data.size(), source));
  for (const TensorEntry* entry : by_offset) contents.names.push_back(entry->name);
  return contents;
}

Expected<Safetensors> Safetensors::open(const std::filesystem::path& path) {
  KV8_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  KV8_ASSIGN_OR_RETURN(SafetensorsContents contents, parse_safetensors(file.bytes(), path.string()));
  return Safetensors(std::move(file), std::move(contents));
}

const TensorView* Safetensors::find(std::string_view name) const {
  const auto it = contents_.tensors.find(name);
  return it == contents_.tensors.end() ? nullptr : &it->second;
}

}  // namespace kv8::formats
