#include "formats/gguf.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace kv8::formats {

namespace {

constexpr std::array<std::string_view, 13> kTypeNames = {
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};

bool is_string(GgufType type) {
  return type == GgufType::string;
}
bool is_boolean(GgufType type) {
  return type == GgufType::boolean;
}
bool is_float(GgufType type) {
  return type == GgufType::f32 || type == GgufType::f64;
}
bool is_integer(GgufType type) {
  return !is_string(type) && !is_boolean(type) && !is_float(type) && type != GgufType::array;
}
bool is_number(GgufType type) {
  return is_integer(type) || is_float(type);
}
bool is_integer_or_boolean(GgufType type) {
  return is_integer(type) || is_boolean(type);
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Calls use(value) with the number of type `type` at `from`, in its own C++ type.
template <class Use>
auto with_number(GgufType type, const std::byte* from, Use use) {
  switch (type) {
    case GgufType::i8:
      return use(load<int8_t>(from));
    case GgufType::u16:
      return use(load<uint16_t>(from));
    case GgufType::i16:
      return use(load<int16_t>(from));
    case GgufType::u32:
      return use(load<uint32_t>(from));
    case GgufType::i32:
      return use(load<int32_t>(from));
    case GgufType::f32:
      return use(load<float>(from));
    case GgufType::u64:
      return use(load<uint64_t>(from));
    case GgufType::i64:
      return use(load<int64_t>(from));
    case GgufType::f64:
      return use(load<double>(from));
    default:  // u8, bool
      return use(load<uint8_t>(from));
  }
}

// False where the number doesn't fit (a u64 of 2^63 or more).
bool to_int64(GgufType type, const std::byte* from, int64_t& out) {
  return with_number(type, from, [&out](auto value) {
    out = static_cast<int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): an i8 is a number
    return !(value > 0 && out < 0);
  });
}

double to_double(GgufType type, const std::byte* from) {
  return with_number(type, from, [](auto value) { return static_cast<double>(value); });
}

std::string describe(const GgufValue& value) {
  if (value.type != GgufType::array) return std::string(to_string(value.type));
  return fmt::format("array of {}", to_string(value.element));
}

}  // namespace

std::string_view to_string(GgufType type) {
  const auto index = static_cast<size_t>(type);
  return index < kTypeNames.size() ? kTypeNames[index] : "unknown";
}

Expected<Gguf> Gguf::open(const std::filesystem::path& path) {
  KV8_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  KV8_ASSIGN_OR_RETURN(GgufContents contents, parse_gguf(file.bytes(), path.string()));
  return Gguf(std::move(file), std::move(contents));
}

const GgufValue* Gguf::find_value(std::string_view key) const {
  const auto it = contents_.metadata.find(key);
  return it == contents_.metadata.end() ? nullptr : &it->second;
}

Expected<const GgufValue*> Gguf::require(std::string_view key, std::string_view expected,
                                         bool right_type(GgufType), bool array) const {
  const GgufValue* value = find_value(key);
  if (value == nullptr) return make_error(ErrorCode::not_found, "{}: {}: missing", path().string(), key);
  const bool is_array = value->type == GgufType::array;
  if (is_array != array || !right_type(is_array ? value->element : value->type)) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: expected {}, found {}", path().string(), key,
                      expected, describe(*value));
  }
  return value;
}

Expected<std::string_view> Gguf::string(std::string_view key) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value, require(key, "a string", is_string, false));
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

Expected<int64_t> Gguf::integer(std::string_view key, int64_t low, int64_t high) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value, require(key, "an integer", is_integer, false));
  int64_t integer = 0;
  if (!to_int64(value->type, value->bytes.data(), integer) || integer < low || integer > high) {
    return make_error(
        ErrorCode::corrupt_data, "{}: {}: {} is outside of {} to {}", path().string(), key,
        with_number(value->type, value->bytes.data(), [](auto n) { return fmt::format("{}", n); }), low,
        high);
  }
  return integer;
}

Expected<double> Gguf::number(std::string_view key) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value, require(key, "a number", is_number, false));
  const double number = to_double(value->type, value->bytes.data());
  if (!std::isfinite(number)) {
    return make_error(ErrorCode::corrupt_data, "{}: {}: {} is not a finite number", path().string(), key,
                      number);
  }
  return number;
}

Expected<bool> Gguf::boolean(std::string_view key) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value, require(key, "true or false", is_boolean, false));
  return value->bytes.front() != std::byte{0};
}

Expected<std::vector<std::string_view>> Gguf::strings(std::string_view key) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value, require(key, "an array of strings", is_string, true));
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  const std::byte* at = value->bytes.data();  // the lengths were checked by the parser
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto length = load<uint64_t>(at);
    strings.emplace_back(reinterpret_cast<const char*>(at + sizeof(length)), length);
    at += sizeof(length) + length;
  }
  return strings;
}

Expected<std::vector<int64_t>> Gguf::integers(std::string_view key) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value,
                       require(key, "an array of integers", is_integer_or_boolean, true));
  std::vector<int64_t> integers(value->count);
  const size_t size = value->count == 0 ? 0 : value->bytes.size() / value->count;
  for (uint64_t i = 0; i < value->count; ++i) {
    if (!to_int64(value->element, value->bytes.data() + i * size, integers[i])) {
      return make_error(ErrorCode::corrupt_data, "{}: {}: element {} is 2^63 or more", path().string(), key,
                        i);
    }
  }
  return integers;
}

Expected<std::vector<float>> Gguf::floats(std::string_view key) const {
  KV8_ASSIGN_OR_RETURN(const GgufValue* value, require(key, "an array of numbers", is_number, true));
  std::vector<float> floats(value->count);
  const size_t size = value->count == 0 ? 0 : value->bytes.size() / value->count;
  for (uint64_t i = 0; i < value->count; ++i) {
    const double number = to_double(value->element, value->bytes.data() + i * size);
    // A conversion out of float's range is undefined; such numbers become infinite, like those already so.
    const bool fits = std::abs(number) <= std::numeric_limits<float>::max() || std::isnan(number);
    floats[i] = fits ? static_cast<float>(number)
                     : static_cast<float>(std::copysign(std::numeric_limits<double>::infinity(), number));
  }
  return floats;
}

Expected<std::string_view> Gguf::string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : Expected<std::string_view>(fallback);
}

Expected<int64_t> Gguf::integer_or(std::string_view key, int64_t fallback, int64_t low, int64_t high) const {
  return has(key) ? integer(key, low, high) : Expected<int64_t>(fallback);
}

Expected<double> Gguf::number_or(std::string_view key, double fallback) const {
  return has(key) ? number(key) : Expected<double>(fallback);
}

Expected<bool> Gguf::boolean_or(std::string_view key, bool fallback) const {
  return has(key) ? boolean(key) : Expected<bool>(fallback);
}

const TensorView* Gguf::find(std::string_view name) const {
  const auto it = contents_.tensors.find(name);
  return it == contents_.tensors.end() || !it->second.unreadable.empty() ? nullptr : &it->second.view;
}

const Shape* Gguf::shape(std::string_view name) const {
  const auto it = contents_.tensors.find(name);
  return it == contents_.tensors.end() ? nullptr : &it->second.view.shape;
}

Expected<TensorView> Gguf::tensor(std::string_view name) const {
  const auto it = contents_.tensors.find(name);
  if (it == contents_.tensors.end()) {
    return make_error(ErrorCode::not_found, "{}: there is no tensor '{}'", path().string(), name);
  }
  if (!it->second.unreadable.empty()) {
    return make_error(
        ErrorCode::unsupported,
        "{}: {}: type {} is not supported; use a file with F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, "
        "Q5_1 or Q2_K to Q6_K",
        path().string(), name, it->second.unreadable);
  }
  return it->second.view;
}

}  // namespace kv8::formats
