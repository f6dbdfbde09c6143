#include "formats/gguf.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format_files.h"

namespace kv8::formats {
namespace {

using test::bytes_of;
using test::format_fixture;
using test::read_bytes;
using testing::ElementsAre;
using testing::HasSubstr;

Gguf open_types() {
  auto file = Gguf::open(format_fixture("gguf/types.gguf"));
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*file);
}

constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();

TEST(Gguf, ReadsEveryMetadataTypeThatPythonWrites) {
  const Gguf file = open_types();
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(*file.integer("value.u8", kLow, kHigh), 200);
  EXPECT_EQ(*file.integer("value.i8", kLow, kHigh), -100);
  EXPECT_EQ(*file.integer("value.u16", kLow, kHigh), 60000);
  EXPECT_EQ(*file.integer("value.i16", kLow, kHigh), -30000);
  EXPECT_EQ(*file.integer("value.u32", kLow, kHigh), 4000000000);
  EXPECT_EQ(*file.integer("value.i32", kLow, kHigh), -2000000000);
  EXPECT_EQ(*file.integer("value.i64", kLow, kHigh), -(int64_t{1} << 62));
  EXPECT_EQ(*file.number("value.f32"), 0.1F);
  EXPECT_EQ(*file.number("value.f64"), M_PI);
  EXPECT_EQ(*file.number("value.i8"), -100.0);
  EXPECT_EQ(*file.boolean("value.bool"), true);
  EXPECT_EQ(*file.string("value.string"), "größer ≥ kleiner");
  EXPECT_THAT(*file.strings("array.strings"), ElementsAre("a", "", "größer", std::string(300, 'x')));
  EXPECT_THAT(*file.integers("array.integers"), ElementsAre(3, -4, 5));
  EXPECT_THAT(*file.floats("array.floats"), ElementsAre(0.5F, -0.25F));
  EXPECT_THAT(*file.integers("array.bools"), ElementsAre(1, 0, 1));
}

TEST(Gguf, ErrorsOfMetadataNameFileAndKey) {
  const Gguf file = open_types();
  const auto expect = [](const auto& result, ErrorCode code, const char* message) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, code);
    EXPECT_THAT(result.error().message, HasSubstr("types.gguf"));
    EXPECT_THAT(result.error().message, HasSubstr(message));
  };
  expect(file.integer("value.u64", kLow, kHigh), ErrorCode::corrupt_data, "value.u64: 18446744073709551615");
  expect(file.integer("value.u8", 0, 199), ErrorCode::corrupt_data, "value.u8: 200 is outside of 0 to 199");
  expect(file.integer("value.f32", kLow, kHigh), ErrorCode::corrupt_data,
         "value.f32: expected an integer, found f32");
  expect(file.string("value.u8"), ErrorCode::corrupt_data, "value.u8: expected a string, found u8");
  expect(file.string("array.strings"), ErrorCode::corrupt_data, "found array of string");
  expect(file.strings("value.string"), ErrorCode::corrupt_data, "value.string: expected an array of strings");
  expect(file.strings("array.floats"), ErrorCode::corrupt_data, "found array of f32");
  expect(file.boolean("value.u8"), ErrorCode::corrupt_data, "value.u8: expected true or false");
  expect(file.string("absent.key"), ErrorCode::not_found, "absent.key: missing");
  EXPECT_EQ(*file.integer_or("absent.key", 7, 0, 9), 7);
  EXPECT_EQ(*file.string_or("absent.key", "x"), "x");
  EXPECT_EQ(*file.number_or("absent.key", 0.5), 0.5);
  EXPECT_EQ(*file.boolean_or("absent.key", true), true);
  expect(file.integer_or("value.string", 7, 0, 9), ErrorCode::corrupt_data, "value.string");
}

TEST(Gguf, ReadsTensorsWithTheirDimensionsReversed) {
  const Gguf file = open_types();
  const std::pair<const char*, DType> types[] = {
      {"f32", DType::f32},   {"f16", DType::f16},   {"bf16", DType::bf16}, {"q8_0", DType::q8_0},
      {"q4_0", DType::q4_0}, {"q4_1", DType::q4_1}, {"q5_0", DType::q5_0}, {"q5_1", DType::q5_1},
      {"q2_k", DType::q2_k}, {"q3_k", DType::q3_k}, {"q4_k", DType::q4_k}, {"q5_k", DType::q5_k},
      {"q6_k", DType::q6_k},
  };
  for (const auto& [name, dtype] : types) {
    const auto view = file.tensor(name);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(view->dtype, dtype) << name;
    EXPECT_EQ(view->shape, Shape({3, 256})) << name;
    EXPECT_EQ(view->bytes, 3 * row_bytes(dtype, 256)) << name;
  }
  const auto integers = file.tensor("i32");
  ASSERT_TRUE(integers);
  EXPECT_EQ(integers->shape, Shape({1, 3, 2}));
  int32_t values[6];
  ASSERT_EQ(integers->bytes, sizeof(values));
  std::memcpy(values, integers->data, sizeof(values));
  EXPECT_THAT(values, ElementsAre(1, -2, 3, -4, 5, -6));
  // f32 and f16 hold the same numbers.
  float wide = 0;
  std::memcpy(&wide, file.find("f32")->data + 4 * 300, 4);
  uint16_t bits = 0;
  std::memcpy(&bits, file.find("bf16")->data + 2 * 300, 2);
  EXPECT_NEAR(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16), wide, std::abs(wide) / 256);
}

TEST(Gguf, TensorsOfOtherTypesAreErrorsOnlyWhenAskedFor) {
  const Gguf file = open_types();
  for (const auto& [name, type] : {std::pair("iq4_nl", "IQ4_NL"), std::pair("mxfp4", "MXFP4")}) {
    EXPECT_TRUE(file.has_tensor(name));
    EXPECT_EQ(file.find(name), nullptr);
    const auto view = file.tensor(name);
    ASSERT_FALSE(view);
    EXPECT_EQ(view.error().code, ErrorCode::unsupported);
    EXPECT_THAT(view.error().message, HasSubstr(name));
    EXPECT_THAT(view.error().message, HasSubstr(type));
  }
  const auto absent = file.tensor("absent");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, ErrorCode::not_found);
  EXPECT_EQ(file.names().size(), 16U);
}

// A file put together field by field, so that each can be wrong.
struct Builder {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::string pairs;
  uint64_t pair_count = 0;
  std::string infos;
  uint64_t tensor_count = 0;
  uint64_t alignment = 32;
  std::string data;

  static std::string text(std::string_view value) {
    return bytes_of(static_cast<uint64_t>(value.size())) + std::string(value);
  }
  Builder& pair(std::string_view key, uint32_t type, std::string_view value) {
    pairs += text(key) + bytes_of(type) + std::string(value);
    ++pair_count;
    return *this;
  }
  Builder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    infos += text(name) + bytes_of(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) infos += bytes_of(dim);
    infos += bytes_of(type) + bytes_of(offset);
    ++tensor_count;
    return *this;
  }
  Builder& with_data(size_t bytes) {
    data = std::string(bytes, 'd');
    return *this;
  }
  std::string bytes() const {
    std::string all =
        magic + bytes_of(version) + bytes_of(tensor_count) + bytes_of(pair_count) + pairs + infos;
    if (!data.empty()) all.resize((all.size() + alignment - 1) / alignment * alignment, '\0');
    return all + data;
  }
};

Expected<GgufContents> parse(std::string_view bytes) {
  return parse_gguf(std::as_bytes(std::span(bytes)), "file.gguf");
}

TEST(Gguf, TheBuilderMakesValidFiles) {
  Builder builder;
  builder.pair("general.alignment", 4, bytes_of(uint32_t{64}))
      .tensor("w", {4, 2}, 0, 0)
      .tensor("v", {4}, 0, 64);
  builder.alignment = 64;
  builder.with_data(80);
  const std::string bytes = builder.bytes();  // what is parsed are views into it
  const auto parsed = parse(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->tensors.at("w").view.shape, Shape({2, 4}));
  builder.version = 2;
  EXPECT_TRUE(parse(builder.bytes()));
  EXPECT_TRUE(parse(Builder().bytes()));  // nothing in it at all
}

TEST(Gguf, EveryKindOfDamageIsAnErrorThatNamesIt) {
  const auto with = [](auto change) {
    Builder builder;
    change(builder);
    return builder.bytes();
  };
  const auto one_tensor = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data) {
    return Builder().tensor("w", dims, type, offset).with_data(data).bytes();
  };
  const std::string valid = one_tensor({4, 2}, 0, 0, 32);
  ASSERT_TRUE(parse(valid));
  struct Damage {
    const char* what;
    std::string bytes;
    const char* message;
  };
  const uint64_t huge = ~uint64_t{0};
  const Damage damages[] = {
      {"empty", "", "magic"},
      {"another format", "PK\3\4 and so on, for long enough", "not a GGUF file"},
      {"no version", "GGUF", "version"},
      {"version 1", with([](Builder& b) { b.version = 1; }), "version: 1"},
      {"version 4", with([](Builder& b) { b.version = 4; }), "version: 4"},
      {"big-endian", with([](Builder& b) { b.version = 0x03000000; }), "big-endian"},
      {"no counts", "GGUF" + bytes_of(uint32_t{3}), "tensor count"},
      {"huge metadata count", with([=](Builder& b) { b.pair_count = huge; }), "metadata count"},
      {"huge tensor count", with([=](Builder& b) { b.tensor_count = huge; }), "tensor count"},
      {"metadata count too large", with([](Builder& b) { b.pair_count = 1; }), "metadata count"},
      {"key of huge length", with([=](Builder& b) {
         b.pairs = bytes_of(huge) + "0123456789";
         b.pair_count = 1;
       }),
       "a metadata key"},
      {"key of no length", with([](Builder& b) { b.pair("", 10, "12345678"); }), "a name of 0 bytes"},
      {"key of 65536 bytes", with([](Builder& b) { b.pair(std::string(65536, 'k'), 0, "1"); }),
       "a name of 65536 bytes"},
      {"unknown value type", with([](Builder& b) { b.pair("k", 13, "1"); }), "k: unknown type 13"},
      {"value cut off", with([](Builder& b) { b.pair("k", 10, "1234567"); }), "k: needs 8 bytes"},
      {"string of huge length", with([=](Builder& b) { b.pair("k", 8, bytes_of(huge) + "text"); }),
       "k: needs"},
      {"key twice", with([](Builder& b) { b.pair("k", 0, "1").pair("k", 0, "2"); }),
       "k: the file has this key twice"},
      {"array of unknown type",
       with([](Builder& b) { b.pair("k", 9, bytes_of(uint32_t{99}) + bytes_of(uint64_t{0})); }),
       "k: unknown type 99"},
      {"array of arrays",
       with([](Builder& b) { b.pair("k", 9, bytes_of(uint32_t{9}) + bytes_of(uint64_t{0})); }),
       "k: arrays of arrays"},
      {"huge array", with([=](Builder& b) { b.pair("k", 9, bytes_of(uint32_t{0}) + bytes_of(huge)); }),
       "k: 18446744073709551615 elements"},
      {"array whose size wraps",
       with([](Builder& b) { b.pair("k", 9, bytes_of(uint32_t{10}) + bytes_of(uint64_t{1} << 61)); }),
       "k: 2305843009213693952 elements"},
      {"huge array of strings",
       with([=](Builder& b) { b.pair("k", 9, bytes_of(uint32_t{8}) + bytes_of(huge)); }),
       "k: 18446744073709551615 elements"},
      {"string of an array cut off", with([](Builder& b) {
         b.pair("k", 9, bytes_of(uint32_t{8}) + bytes_of(uint64_t{1}) + bytes_of(uint64_t{5}) + "1234");
       }),
       "k: needs 5 bytes"},
      {"alignment 0", with([](Builder& b) { b.pair("general.alignment", 4, bytes_of(uint32_t{0})); }),
       "general.alignment"},
      {"alignment 24", with([](Builder& b) { b.pair("general.alignment", 4, bytes_of(uint32_t{24})); }),
       "general.alignment"},
      {"alignment 2^31",
       with([](Builder& b) { b.pair("general.alignment", 4, bytes_of(uint32_t{1} << 31)); }),
       "general.alignment"},
      {"alignment a string", with([](Builder& b) { b.pair("general.alignment", 8, Builder::text("32")); }),
       "general.alignment"},
      {"tensor without a name", Builder().tensor("", {4}, 0, 0).with_data(16).bytes(), "a name of 0 bytes"},
      {"rank 7", one_tensor({1, 1, 1, 1, 1, 1, 1}, 0, 0, 4), "w: 7 dimensions"},
      {"rank huge", with([](Builder& b) {
         b.infos = Builder::text("w") + bytes_of(~uint32_t{0}) + std::string(40, 'x');
         b.tensor_count = 1;
       }),
       "w: 4294967295 dimensions"},
      {"dimension huge", one_tensor({huge}, 0, 0, 32), "w: dimension 0"},
      {"dimensions overflow", one_tensor({uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0, 32),
       "w: [4294967296, 4294967296] of F32"},
      {"dimensions wrap to 32", one_tensor({4, 2, uint64_t{1} << 31, uint64_t{1} << 31, 4}, 0, 0, 32),
       "w: ["},
      {"half a block", one_tensor({16, 2}, 2, 0, 32), "w: rows of 16 elements"},
      {"offset not aligned", one_tensor({4}, 0, 16, 64), "w: offset 16"},
      {"offset past the end", one_tensor({4}, 0, 64, 32), "w: 16 bytes at offset 64"},
      {"offset huge", one_tensor({4}, 0, huge - 31, 32), "w: 16 bytes at offset"},
      {"data cut off", one_tensor({4, 2}, 0, 0, 31), "w: 32 bytes at offset 0"},
      {"data absent", one_tensor({4, 2}, 0, 0, 0), "w: 32 bytes at offset 0"},
      {"unreadable type cut off", one_tensor({32}, 20, 0, 17), "w: 18 bytes at offset 0"},
      {"tensor twice", Builder().tensor("w", {4}, 0, 0).tensor("w", {4}, 0, 32).with_data(64).bytes(),
       "w: the file has this tensor twice"},
      {"overlap", Builder().tensor("w", {4, 3}, 0, 0).tensor("v", {4}, 0, 32).with_data(64).bytes(),
       "v: its data at offset 32 overlap w"},
      {"same data", Builder().tensor("w", {4}, 0, 0).tensor("v", {4}, 0, 0).with_data(64).bytes(),
       "v: its data at offset 0 overlap w"},
  };
  for (const Damage& damage : damages) {
    const auto parsed = parse(damage.bytes);
    ASSERT_FALSE(parsed) << damage.what;
    EXPECT_THAT(parsed.error().message, HasSubstr("file.gguf")) << damage.what;
    EXPECT_THAT(parsed.error().message, HasSubstr(damage.message)) << damage.what;
  }
}

TEST(Gguf, AnUnknownTypeDoesNotKeepAFileFromOpening) {
  const std::string bytes = Builder().tensor("w", {4}, 999, 0).tensor("v", {4}, 0, 32).with_data(48).bytes();
  const auto parsed = parse(bytes);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_FALSE(parsed->tensors.at("w").unreadable.empty());
  EXPECT_TRUE(parsed->tensors.at("v").unreadable.empty());
}

// Flips of every byte of the head, and truncations: an error, or a file that can be read through.
TEST(Gguf, NoMutationOfAValidFileIsReadOutsideOfItself) {
  const std::string valid = read_bytes(format_fixture("gguf/types.gguf"));
  const auto intact = parse(valid);
  ASSERT_TRUE(intact);
  const auto head = static_cast<size_t>(intact->tensors.at("f32").view.data -
                                        reinterpret_cast<const std::byte*>(valid.data()));
  int errors = 0;
  const auto visit = [&errors](std::string bytes) {
    bytes.shrink_to_fit();  // so that a sanitizer sees a read past the end
    const auto parsed = parse(bytes);
    if (!parsed) {
      ++errors;
      return;
    }
    unsigned sum = 0;
    for (const auto& [key, value] : parsed->metadata) {
      for (const std::byte byte : value.bytes) sum += static_cast<uint8_t>(byte);
    }
    for (const auto& [name, tensor] : parsed->tensors) {
      for (size_t i = 0; i < tensor.view.bytes; ++i) sum += static_cast<uint8_t>(tensor.view.data[i]);
    }
    EXPECT_GT(sum, 0U);
  };
  std::mt19937 random(2);
  for (size_t at = 0; at < head; ++at) {
    std::string mutated = valid;
    mutated[at] = static_cast<char>(mutated[at] ^ static_cast<char>(1 + random() % 255));
    visit(mutated);
    visit(valid.substr(0, at));
  }
  EXPECT_GT(errors, static_cast<int>(head));
}

}  // namespace
}  // namespace kv8::formats
