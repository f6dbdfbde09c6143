#include "formats/safetensors.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.h"
#include "format_files.h"

namespace kv8::formats {
namespace {

using test::bytes_of;
using test::format_fixture;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using testing::HasSubstr;

std::string file_of(std::string_view header, size_t data_bytes) {
  return bytes_of(static_cast<uint64_t>(header.size())) + std::string(header) + std::string(data_bytes, 'd');
}

Expected<SafetensorsContents> parse(std::string_view bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes)), "file.safetensors");
}

TEST(Safetensors, ReadsEveryTypeThatPythonWrites) {
  const auto file = Safetensors::open(format_fixture("safetensors/types.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  const std::pair<const char*, DType> types[] = {
      {"float64", DType::f64},
      {"float32", DType::f32},
      {"float16", DType::f16},
      {"bfloat16", DType::bf16},
      {"float8_e4m3fn", DType::f8_e4m3},
      {"float8_e5m2", DType::f8_e5m2},
      {"int64", DType::i64},
      {"int32", DType::i32},
      {"int16", DType::i16},
      {"int8", DType::i8},
      {"uint64", DType::u64},
      {"uint32", DType::u32},
      {"uint16", DType::u16},
      {"uint8", DType::u8},
      {"bool", DType::boolean},
  };
  for (const auto& [name, dtype] : types) {
    const TensorView* view = file->find(name);
    ASSERT_NE(view, nullptr) << name;
    EXPECT_EQ(view->dtype, dtype) << name;
    EXPECT_EQ(view->shape, Shape({2, 3})) << name;
    ASSERT_EQ(view->bytes, 6 * row_bytes(dtype, 1)) << name;
    for (size_t i = 0; i < view->bytes; ++i) {
      const auto expected = static_cast<uint8_t>(i * 37 + 11);
      EXPECT_EQ(static_cast<uint8_t>(view->data[i]), dtype == DType::boolean ? expected % 2 : expected)
          << name;
    }
  }
  const TensorView* scalar = file->find("scalar");
  ASSERT_NE(scalar, nullptr);
  EXPECT_EQ(scalar->shape.rank(), 0);
  float value = 0;
  std::memcpy(&value, scalar->data, sizeof(value));
  EXPECT_EQ(value, 1.5F);
  ASSERT_NE(file->find("empty"), nullptr);
  EXPECT_EQ(file->find("empty")->shape, Shape({0, 7}));
  EXPECT_EQ(file->find("empty")->bytes, 0U);
  EXPECT_EQ(file->find("absent"), nullptr);
  EXPECT_EQ(file->names().size(), 17U);
  EXPECT_EQ(file->metadata().at("note"), "größer ≥ kleiner");
}

TEST(Safetensors, ReadsTheModelFixtures) {
  ASSERT_FALSE(test::model_fixtures().empty());
  for (const std::string& family : test::model_fixtures()) {
    const auto file = Safetensors::open(test::fixtures() / "models" / family / "golden.safetensors");
    ASSERT_TRUE(file) << file.error().message;
    const TensorView* logits = file->find("logits");
    ASSERT_NE(logits, nullptr) << family;
    EXPECT_EQ(logits->dtype, DType::f32) << family;
    EXPECT_EQ(logits->shape.rank(), 2) << family;
    ASSERT_NE(file->find("input_ids"), nullptr) << family;
    EXPECT_EQ(logits->shape[0], file->find("input_ids")->shape.elements()) << family;
  }
}

TEST(Safetensors, ViewsSurviveAMove) {
  auto opened = Safetensors::open(format_fixture("safetensors/types.safetensors"));
  ASSERT_TRUE(opened);
  const TensorView* before = opened->find("int32");
  const Safetensors moved = std::move(*opened);
  EXPECT_EQ(moved.find("int32"), before);
  EXPECT_EQ(static_cast<uint8_t>(before->data[0]), 11);
}

// Each damaged header, and what the message must say beside the file's name.
struct Damage {
  const char* what;
  std::string bytes;
  const char* message;
};

std::string tensor(std::string_view fields) {
  return std::string(R"({"w":{)") + std::string(fields) + "}}";
}

TEST(Safetensors, EveryKindOfDamageIsAnErrorThatNamesIt) {
  const std::string ok = R"("dtype":"F32","shape":[2,2],"data_offsets":[0,16])";
  ASSERT_TRUE(parse(file_of(tensor(ok), 16)));
  const std::string deep(100'000, '[');
  const Damage damages[] = {
      {"empty file", "", "0 bytes"},
      {"short file", "1234567", "7 bytes"},
      {"header past the end", bytes_of(uint64_t{100}) + "{}", "header length: 100"},
      {"huge header", bytes_of(~uint64_t{0}) + "{}", "header length"},
      {"header of 200 MB", bytes_of(uint64_t{200'000'000}) + "{}", "header length"},
      {"empty header", file_of("", 0), "not valid JSON"},
      {"not JSON", file_of("{nonsense", 0), "not valid JSON"},
      {"more after the JSON", file_of("{} {}", 0), "not valid JSON"},
      {"broken UTF-8", file_of("{\"\xff\xfe\":{}}", 0), "not valid JSON"},
      {"list at the top", file_of("[]", 0), "expected an object"},
      {"number at the top", file_of("7", 0), "expected an object"},
      {"deep lists", file_of(deep, 0), "expected an object"},
      {"deep shape", file_of(R"({"w":{"dtype":"F32","shape":)" + deep, 0),
       "w: shape: expected a non-negative integer"},
      {"deep objects", file_of(R"({"w":{"x":{"y":{}}}})", 0), "'x' is not a field"},
      {"tensor is a number", file_of(R"({"w":7})", 0), "'w': expected an object"},
      {"tensor is null", file_of(R"({"w":null})", 0), "'w': expected an object"},
      {"metadata is a list", file_of(R"({"__metadata__":[]})", 0), "__metadata__"},
      {"metadata has a number", file_of(R"({"__metadata__":{"a":1}})", 0),
       "__metadata__: 'a': expected a string"},
      {"metadata key twice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "'a' is there twice"},
      {"no dtype", file_of(tensor(R"("shape":[2,2],"data_offsets":[0,16])"), 16), "w: dtype: missing"},
      {"no shape", file_of(tensor(R"("dtype":"F32","data_offsets":[0,16])"), 16), "w: shape: missing"},
      {"no offsets", file_of(tensor(R"("dtype":"F32","shape":[2,2])"), 16), "w: data_offsets: missing"},
      {"unknown field", file_of(tensor(ok + R"(,"stride":[1])"), 16), "w: 'stride' is not a field"},
      {"field twice", file_of(tensor(ok + R"(,"dtype":"F32")"), 16), "w: dtype: given twice"},
      {"dtype is a number", file_of(tensor(R"("dtype":3,"shape":[],"data_offsets":[0,4])"), 4),
       "w: dtype: expected a string"},
      {"unknown dtype", file_of(tensor(R"("dtype":"F4","shape":[2,2],"data_offsets":[0,16])"), 16),
       "w: dtype: 'F4'"},
      {"shape is a string", file_of(tensor(R"("dtype":"F32","shape":"2","data_offsets":[0,16])"), 16),
       "w: shape: expected a list"},
      {"negative shape", file_of(tensor(R"("dtype":"F32","shape":[-2,-2],"data_offsets":[0,16])"), 16),
       "w: shape: expected a non-negative integer, found -2"},
      {"fractional shape", file_of(tensor(R"("dtype":"F32","shape":[2.5,2],"data_offsets":[0,16])"), 16),
       "w: shape: expected a non-negative integer, found 2.5"},
      {"huge dimension",
       file_of(tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16])"), 16),
       "w: shape"},
      {"overflowing shape",
       file_of(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16])"), 16),
       "w: shape"},
      {"shape that wraps to 16 bytes",
       file_of(tensor(R"("dtype":"F32","shape":[2,2,2147483648,2147483648,4],"data_offsets":[0,16])"), 16),
       "w: shape"},
      {"rank 7", file_of(tensor(R"("dtype":"F32","shape":[1,1,1,1,1,2,2],"data_offsets":[0,16])"), 16),
       "w: shape: 7 dimensions"},
      {"shape too small", file_of(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,16])"), 16),
       "w: data_offsets: 16 bytes"},
      {"offsets past the end", file_of(tensor(R"("dtype":"F32","shape":[2,2],"data_offsets":[16,32])"), 16),
       "w: data_offsets"},
      {"offsets reversed", file_of(tensor(R"("dtype":"F32","shape":[2,2],"data_offsets":[16,0])"), 16),
       "w: data_offsets"},
      {"offsets huge",
       file_of(
           tensor(
               R"("dtype":"F32","shape":[2,2],"data_offsets":[18446744073709551600,18446744073709551615])"),
           16),
       "w: data_offsets"},
      {"offsets negative", file_of(tensor(R"("dtype":"F32","shape":[2,2],"data_offsets":[-16,0])"), 16),
       "w: data_offsets: expected a non-negative integer"},
      {"one offset", file_of(tensor(R"("dtype":"F32","shape":[2,2],"data_offsets":[0])"), 16),
       "w: data_offsets: two numbers"},
      {"three offsets", file_of(tensor(R"("dtype":"F32","shape":[2,2],"data_offsets":[0,16,32])"), 16),
       "w: data_offsets: two numbers"},
      {"data missing", file_of(tensor(ok), 15), "w: data_offsets"},
      {"data left over", file_of(tensor(ok), 17), "17 bytes of data"},
      {"hole before", file_of(tensor(R"("dtype":"U8","shape":[2],"data_offsets":[2,4])"), 4),
       "w: data_offsets: begins at 2"},
      {"same name twice",
       file_of(
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2),
       "w: the header has this tensor twice"},
      {"overlap",
       file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "b: data_offsets: [1, 3] overlaps a"},
      {"same range twice",
       file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
           2),
       "b: data_offsets: [0, 2] overlaps a"},
      {"hole between",
       file_of(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
           5),
       "b: data_offsets: begins at 3"},
  };
  for (const Damage& damage : damages) {
    const auto parsed = parse(damage.bytes);
    ASSERT_FALSE(parsed) << damage.what;
    EXPECT_THAT(parsed.error().message, HasSubstr("file.safetensors")) << damage.what;
    EXPECT_THAT(parsed.error().message, HasSubstr(damage.message)) << damage.what;
  }
}

TEST(Safetensors, AlignmentIsNotAskedFor) {
  const auto parsed = parse(file_of(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
      5));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->tensors.at("b").bytes, 4U);
}

// Flips of every byte and every truncation of a valid file: an error or a file whose tensors can all be read.
TEST(Safetensors, NoMutationOfAValidFileIsReadOutsideOfItself) {
  const std::string valid = read_bytes(format_fixture("safetensors/types.safetensors"));
  int errors = 0;
  const auto visit = [&errors](std::string bytes) {
    bytes.shrink_to_fit();  // so that a sanitizer sees a read past the end
    const auto parsed = parse(bytes);
    if (!parsed) {
      ++errors;
      return;
    }
    unsigned sum = 0;
    for (const auto& [name, view] : parsed->tensors) {
      for (size_t i = 0; i < view.bytes; ++i) sum += static_cast<uint8_t>(view.data[i]);
    }
    EXPECT_GT(sum, 0U);
  };
  std::mt19937 random(1);
  for (size_t at = 0; at < valid.size(); ++at) {
    std::string mutated = valid;
    mutated[at] = static_cast<char>(mutated[at] ^ static_cast<char>(1 + random() % 255));
    visit(mutated);
    visit(valid.substr(0, at));
  }
  EXPECT_GT(errors, static_cast<int>(valid.size()));  // every truncation, and most flips in the header
}

TEST(Safetensors, OpenNamesTheFileThatIsNotThere) {
  const auto missing = Safetensors::open("/nowhere/model.safetensors");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("/nowhere/model.safetensors"));
}

TEST(WriteSafetensors, RoundTripsAndLeavesNothingElseBehind) {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  std::vector<std::byte> bytes(64);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const std::vector<NamedTensor> tensors = {
      {"a \"quoted\" name", {DType::u8, Shape({3}), bytes.data(), 3}},
      {"b", {DType::f32, Shape({2, 4}), bytes.data() + 3, 32}},
      {"c", {DType::bf16, Shape(), bytes.data() + 40, 2}},
      {"d", {DType::f8_e4m3, Shape({0, 5}), bytes.data(), 0}},
  };
  const auto path = folder / "out.safetensors";
  const auto written = write_safetensors(path, tensors, {{"made by", "a test"}});
  ASSERT_TRUE(written) << written.error().message;
  const auto file = Safetensors::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().at("made by"), "a test");
  for (const NamedTensor& tensor : tensors) {
    const TensorView* view = file->find(tensor.name);
    ASSERT_NE(view, nullptr) << tensor.name;
    EXPECT_EQ(view->dtype, tensor.view.dtype);
    EXPECT_EQ(view->shape, tensor.view.shape);
    ASSERT_EQ(view->bytes, tensor.view.bytes);
    EXPECT_EQ(std::memcmp(view->data, tensor.view.data, view->bytes), 0) << tensor.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view->data) % row_bytes(view->dtype, 1), 0U) << tensor.name;
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteSafetensors, RefusesWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const std::byte bytes[18] = {};
  const NamedTensor block{"w", {DType::q4_0, Shape({32}), bytes, 18}};
  const NamedTensor byte{"w", {DType::u8, Shape({1}), bytes, 1}};
  const NamedTensor reserved{"__metadata__", {DType::u8, Shape({1}), bytes, 1}};
  const auto path = folder / "out.safetensors";
  for (const std::vector<NamedTensor>& tensors :
       {std::vector{block}, std::vector{byte, byte}, std::vector{reserved}}) {
    const auto written = write_safetensors(path, tensors);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const auto nowhere = write_safetensors(folder / "no/such/folder.safetensors", std::vector{byte});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::io);
}

}  // namespace
}  // namespace kv8::formats
