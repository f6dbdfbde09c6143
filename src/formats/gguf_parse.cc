// The layout of a GGUF file: magic, version, counts; key-value pairs; tensor infos; aligned data.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "formats/gguf.h"

namespace kv8::formats {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxNameBytes = 65535;          // of a key (the format's limit) and of a tensor's name
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;  // key length, key, type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;  // name length, name, rank, type, offset

// A type of tensor by the file's code. Sizes are known even of types that kv8 doesn't read, so that their
// ranges are checked too.
struct TensorType {
  uint32_t code;
  std::string_view name;
  int block_elements;
  int block_bytes;
  std::optional<DType> dtype;
};

constexpr std::array<TensorType, 34> kTensorTypes = {{
    {0, "F32", 1, 4, DType::f32},
    {1, "F16", 1, 2, DType::f16},
    {2, "Q4_0", 32, 18, DType::q4_0},
    {3, "Q4_1", 32, 20, DType::q4_1},
    {6, "Q5_0", 32, 22, DType::q5_0},
    {7, "Q5_1", 32, 24, DType::q5_1},
    {8, "Q8_0", 32, 34, DType::q8_0},
    {9, "Q8_1", 32, 36, std::nullopt},
    {10, "Q2_K", 256, 84, DType::q2_k},
    {11, "Q3_K", 256, 110, DType::q3_k},
    {12, "Q4_K", 256, 144, DType::q4_k},
    {13, "Q5_K", 256, 176, DType::q5_k},
    {14, "Q6_K", 256, 210, DType::q6_k},
    {15, "Q8_K", 256, 292, std::nullopt},
    {16, "IQ2_XXS", 256, 66, std::nullopt},
    {17, "IQ2_XS", 256, 74, std::nullopt},
    {18, "IQ3_XXS", 256, 98, std::nullopt},
    {19, "IQ1_S", 256, 50, std::nullopt},
    {20, "IQ4_NL", 32, 18, std::nullopt},
    {21, "IQ3_S", 256, 110, std::nullopt},
    {22, "IQ2_S", 256, 82, std::nullopt},
    {23, "IQ4_XS", 256, 136, std::nullopt},
    {24, "I8", 1, 1, DType::i8},
    {25, "I16", 1, 2, DType::i16},
    {26, "I32", 1, 4, DType::i32},
    {27, "I64", 1, 8, DType::i64},
    {28, "F64", 1, 8, DType::f64},
    {29, "IQ1_M", 256, 56, std::nullopt},
    {30, "BF16", 1, 2, DType::bf16},
    {34, "TQ1_0", 256, 54, std::nullopt},
    {35, "TQ2_0", 256, 66, std::nullopt},
    {39, "MXFP4", 32, 17, std::nullopt},
    {40, "NVFP4", 64, 36, std::nullopt},
    {41, "Q1_0", 128, 18, std::nullopt},
}};

// Bytes of one value; 0 for strings and arrays.
uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

// A tensor's info, before its data has been located.
struct TensorInfo {
  std::string_view name;
  const TensorType* type = nullptr;  // nullptr: a type not known at all
  uint32_t type_code = 0;
  Shape shape;
  uint64_t offset = 0;  // from the start of the data
  uint64_t bytes = 0;   // 0 if the type is not known
};

class Parser {
 public:
  Parser(std::span<const std::byte> file, std::string_view source) : file_(file), source_(source) {}

  Expected<GgufContents> parse() {
    KV8_RETURN_IF_ERROR(read_head());
    for (uint64_t i = 0; i < pair_count_; ++i) KV8_RETURN_IF_ERROR(read_pair());
    std::vector<TensorInfo> infos;
    for (uint64_t i = 0; i < tensor_count_; ++i) {
      KV8_ASSIGN_OR_RETURN(infos.emplace_back(), read_tensor_info());
    }
    KV8_RETURN_IF_ERROR(place_tensors(infos));
    return std::move(contents_);
  }

 private:
  template <class... Args>
  tl::unexpected<Error> corrupt(std::string_view where, fmt::format_string<Args...> format,
                                Args&&... args) const {
    return make_error(ErrorCode::corrupt_data, "{}: {}: {}", source_, where,
                      fmt::format(format, std::forward<Args>(args)...));
  }

  uint64_t left() const { return file_.size() - at_; }

  Expected<std::span<const std::byte>> take(uint64_t bytes, std::string_view where) {
    if (bytes > left()) return corrupt(where, "needs {} bytes, but the file ends in {}", bytes, left());
    const auto taken = file_.subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }

  template <class T>
  Expected<T> take_number(std::string_view where) {
    KV8_ASSIGN_OR_RETURN(const auto bytes, take(sizeof(T), where));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  Expected<std::string_view> take_string(std::string_view where) {
    KV8_ASSIGN_OR_RETURN(const auto length, take_number<uint64_t>(where));
    KV8_ASSIGN_OR_RETURN(const auto bytes, take(length, where));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Expected<std::string_view> take_name(std::string_view where) {
    KV8_ASSIGN_OR_RETURN(const std::string_view name, take_string(where));
    if (name.empty() || name.size() > kMaxNameBytes) {
      return corrupt(where, "a name of {} bytes; 1 to {} are expected", name.size(), kMaxNameBytes);
    }
    return name;
  }

  Status read_head() {
    KV8_ASSIGN_OR_RETURN(const auto magic, take(kMagic.size(), "magic"));
    if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
      return corrupt("magic", "not a GGUF file");
    }
    KV8_ASSIGN_OR_RETURN(contents_.version, take_number<uint32_t>("version"));
    if (contents_.version < 2 || contents_.version > 3) {
      // A big-endian file's version has its bytes the other way round.
      const bool big_endian = contents_.version != 0 && (contents_.version & 0xFFFF) == 0;
      return make_error(ErrorCode::unsupported, "{}: version: {}, but little-endian 2 or 3 is expected",
                        source_, big_endian ? "a big-endian file" : fmt::format("{}", contents_.version));
    }
    KV8_ASSIGN_OR_RETURN(tensor_count_, take_number<uint64_t>("tensor count"));
    KV8_ASSIGN_OR_RETURN(pair_count_, take_number<uint64_t>("metadata count"));
    if (pair_count_ > left() / kMinPairBytes) {
      return corrupt("metadata count", "{} pairs cannot lie in {} bytes", pair_count_, left());
    }
    if (tensor_count_ > left() / kMinTensorBytes) {
      return corrupt("tensor count", "{} tensors cannot lie in {} bytes", tensor_count_, left());
    }
    return {};
  }

  Expected<GgufType> take_type(std::string_view where) {
    KV8_ASSIGN_OR_RETURN(const auto code, take_number<uint32_t>(where));
    if (code > static_cast<uint32_t>(GgufType::f64)) return corrupt(where, "unknown type {}", code);
    return static_cast<GgufType>(code);
  }

  Status read_pair() {
    KV8_ASSIGN_OR_RETURN(const std::string_view key, take_name("a metadata key"));
    GgufValue value;
    KV8_ASSIGN_OR_RETURN(value.type, take_type(key));
    if (value.type == GgufType::string) {
      KV8_ASSIGN_OR_RETURN(const std::string_view text, take_string(key));
      value.bytes = std::as_bytes(std::span(text));
    } else if (value.type == GgufType::array) {
      KV8_RETURN_IF_ERROR(read_array(key, value));
    } else {
      KV8_ASSIGN_OR_RETURN(value.bytes, take(scalar_bytes(value.type), key));
    }
    if (!contents_.metadata.emplace(key, value).second) return corrupt(key, "the file has this key twice");
    return {};
  }

  Status read_array(std::string_view key, GgufValue& value) {
    KV8_ASSIGN_OR_RETURN(value.element, take_type(key));
    KV8_ASSIGN_OR_RETURN(value.count, take_number<uint64_t>(key));
    if (value.element == GgufType::array) {
      return make_error(ErrorCode::unsupported, "{}: {}: arrays of arrays are not supported", source_, key);
    }
    const uint64_t least = value.element == GgufType::string ? 8 : scalar_bytes(value.element);
    if (value.count > left() / least) {
      return corrupt(key, "{} elements cannot lie in {} bytes", value.count, left());
    }
    if (value.element != GgufType::string) {
      KV8_ASSIGN_OR_RETURN(value.bytes, take(value.count * least, key));
      return {};
    }
    const uint64_t begin = at_;
    for (uint64_t i = 0; i < value.count; ++i) KV8_RETURN_IF_ERROR(take_string(key));
    value.bytes = file_.subspan(begin, at_ - begin);
    return {};
  }

  Expected<TensorInfo> read_tensor_info() {
    TensorInfo info;
    KV8_ASSIGN_OR_RETURN(info.name, take_name("a tensor's name"));
    KV8_ASSIGN_OR_RETURN(const auto rank, take_number<uint32_t>(info.name));
    if (rank > static_cast<uint32_t>(kMaxRank)) {
      return corrupt(info.name, "{} dimensions; at most {} are expected", rank, kMaxRank);
    }
    std::array<int64_t, kMaxRank> dims{};
    for (uint32_t axis = 0; axis < rank; ++axis) {
      KV8_ASSIGN_OR_RETURN(const auto dim, take_number<uint64_t>(info.name));
      if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return corrupt(info.name, "dimension {} is {}", axis, dim);
      }
      dims[rank - 1 - axis] = static_cast<int64_t>(dim);  // the file's first dimension varies fastest
    }
    info.shape = Shape::from({dims.data(), rank});
    KV8_ASSIGN_OR_RETURN(info.type_code, take_number<uint32_t>(info.name));
    KV8_ASSIGN_OR_RETURN(info.offset, take_number<uint64_t>(info.name));
    const auto* type = std::ranges::find(kTensorTypes, info.type_code, &TensorType::code);
    if (type != kTensorTypes.end()) {
      info.type = type;
      KV8_ASSIGN_OR_RETURN(info.bytes, tensor_bytes(info));
    }
    return info;
  }

  Expected<uint64_t> tensor_bytes(const TensorInfo& info) const {
    const int64_t cols = info.shape.rank() == 0 ? 1 : info.shape[-1];
    if (cols % info.type->block_elements != 0) {
      return corrupt(info.name, "rows of {} elements are not whole {} blocks of {}", cols, info.type->name,
                     info.type->block_elements);
    }
    int64_t bytes = info.type->block_bytes;
    bool overflow = __builtin_mul_overflow(bytes, cols / info.type->block_elements, &bytes);
    for (int axis = 0; axis + 1 < info.shape.rank(); ++axis) {
      overflow = __builtin_mul_overflow(bytes, info.shape[axis], &bytes) || overflow;
    }
    if (overflow) {
      return corrupt(info.name, "{} of {} is more than 2^63 bytes", info.shape.to_string(), info.type->name);
    }
    return static_cast<uint64_t>(bytes);
  }

  Expected<uint64_t> alignment() const {
    const auto it = contents_.metadata.find("general.alignment");
    if (it == contents_.metadata.end()) return kDefaultAlignment;
    uint32_t alignment = 0;
    if (it->second.type == GgufType::u32) std::memcpy(&alignment, it->second.bytes.data(), sizeof(alignment));
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      return corrupt("general.alignment", "expected a u32 that is a power of two, at most {}", kMaxAlignment);
    }
    return alignment;
  }

  Status place_tensors(std::vector<TensorInfo>& infos) {
    KV8_ASSIGN_OR_RETURN(const uint64_t align, alignment());
    const uint64_t data_begin = std::min<uint64_t>((at_ + align - 1) / align * align, file_.size());
    const auto data = file_.subspan(data_begin);
    for (const TensorInfo& info : infos) {
      if (info.offset % align != 0) {
        return corrupt(info.name, "offset {} is not a multiple of the alignment {}", info.offset, align);
      }
      if (info.offset > data.size() || info.bytes > data.size() - info.offset) {
        return corrupt(info.name, "{} bytes at offset {} lie outside of the {} bytes of data; truncated?",
                       info.bytes, info.offset, data.size());
      }
      KV8_RETURN_IF_ERROR(add_tensor(info, data));
    }
    return check_overlaps(infos);
  }

  Status add_tensor(const TensorInfo& info, std::span<const std::byte> data) {
    GgufTensor tensor;
    tensor.view.shape = info.shape;
    if (info.type != nullptr && info.type->dtype) {
      tensor.view.dtype = *info.type->dtype;
      tensor.view.data = data.data() + info.offset;
      tensor.view.bytes = info.bytes;
    } else {
      tensor.unreadable = info.type != nullptr ? info.type->name : "unknown to this version";
    }
    if (!contents_.tensors.emplace(info.name, tensor).second) {
      return corrupt(info.name, "the file has this tensor twice");
    }
    contents_.tensor_names.push_back(info.name);
    return {};
  }

  Status check_overlaps(std::vector<TensorInfo>& infos) const {
    std::ranges::stable_sort(infos, [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    for (size_t i = 1; i < infos.size(); ++i) {
      const uint64_t previous_end = infos[i - 1].offset + infos[i - 1].bytes;
      if (infos[i].offset < previous_end) {
        return corrupt(infos[i].name, "its data at offset {} overlap {}, which ends at {}", infos[i].offset,
                       infos[i - 1].name, previous_end);
      }
    }
    return {};
  }

  std::span<const std::byte> file_;
  std::string_view source_;
  size_t at_ = 0;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
  GgufContents contents_;
};

}  // namespace

Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view source) {
  return Parser(bytes, source).parse();
}

}  // namespace kv8::formats
