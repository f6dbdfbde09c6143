#include "numerics/dequantize.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/tensor.h"

namespace kv8::numerics {
namespace {

constexpr int kDTypes = static_cast<int>(DType::q6_k) + 1;

struct Golden {
  std::vector<std::byte> row;
  std::vector<float> values;
};

// See scripts/make_dequantize_fixture.py for the layout.
std::map<std::string, Golden> read_goldens() {
  // Part of the repository, wherever the models' fixtures are taken from.
  const auto path = std::filesystem::path(KV8_SOURCE_DIR) / "tests/fixtures/gguf/dequantize.bin";
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  std::map<std::string, Golden> goldens;
  size_t at = 0;
  const auto take = [&](void* to, size_t size) {
    ASSERT_LE(at + size, bytes.size());
    std::memcpy(to, bytes.data() + at, size);
    at += size;
  };
  while (at < bytes.size() && !testing::Test::HasFatalFailure()) {
    char name[17] = {};
    uint32_t elements = 0;
    uint32_t row_size = 0;
    take(name, 16);
    take(&elements, 4);
    take(&row_size, 4);
    Golden& golden = goldens[name];
    golden.row.resize(row_size);
    golden.values.resize(elements);
    take(golden.row.data(), row_size);
    take(golden.values.data(), elements * sizeof(float));
  }
  return goldens;
}

TEST(Dequantize, AgreesBitForBitWithThePythonPackages) {
  const auto goldens = read_goldens();
  int checked = 0;
  for (int code = 0; code < kDTypes; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (dtype == DType::boolean) continue;
    const auto found = goldens.find(std::string(to_string(dtype)));
    ASSERT_NE(found, goldens.end()) << to_string(dtype);
    const Golden& golden = found->second;
    const auto cols = static_cast<int64_t>(golden.values.size());
    ASSERT_EQ(row_bytes(dtype, cols), golden.row.size()) << to_string(dtype);
    std::vector<float> out(golden.values.size(), -12345.0f);
    dequantize_row(dtype, golden.row.data(), cols, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      if (std::isnan(golden.values[i])) {
        EXPECT_TRUE(std::isnan(out[i])) << to_string(dtype) << " element " << i;
      } else {
        EXPECT_EQ(out[i], golden.values[i]) << to_string(dtype) << " element " << i;
        EXPECT_EQ(std::signbit(out[i]), std::signbit(golden.values[i]))
            << to_string(dtype) << " element " << i;
      }
    }
    ++checked;
  }
  EXPECT_EQ(checked, 24);
}

TEST(Dequantize, BooleansAreZeroAndOne) {
  const std::byte row[] = {std::byte{0}, std::byte{1}, std::byte{0}};
  float out[3] = {};
  dequantize_row(DType::boolean, row, 3, out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 1.0f);
  EXPECT_EQ(out[2], 0.0f);
}

TEST(Dequantize, RowsMayLieAnywhere) {
  const auto goldens = read_goldens();
  const Golden& golden = goldens.at("q4_k");
  std::vector<std::byte> shifted(golden.row.size() + 3);
  std::memcpy(shifted.data() + 3, golden.row.data(), golden.row.size());
  std::vector<float> out(golden.values.size());
  dequantize_row(DType::q4_k, shifted.data() + 3, static_cast<int64_t>(out.size()), out.data());
  EXPECT_EQ(out, golden.values);
}

}  // namespace
}  // namespace kv8::numerics
