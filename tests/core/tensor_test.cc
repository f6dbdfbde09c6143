#include "core/tensor.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace kv8 {
namespace {

TEST(Shape, KnowsItsDims) {
  const Shape shape{2, 3, 5};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[2], 5);
  EXPECT_EQ(shape[-1], 5);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(shape.elements(), 30);
  EXPECT_EQ(shape.to_string(), "[2, 3, 5]");
}

TEST(Shape, ScalarHasOneElementAndNoDims) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.to_string(), "[]");
}

TEST(Shape, ZeroIsADim) {
  EXPECT_EQ((Shape{4, 0, 2}.elements()), 0);
}

TEST(Shape, ComparesRankAndDims) {
  EXPECT_EQ((Shape{2, 3}), (Shape::from(std::vector<int64_t>{2, 3})));
  EXPECT_FALSE((Shape{2, 3} == Shape{3, 2}));
  EXPECT_FALSE((Shape{2, 3} == Shape{2, 3, 1}));
  EXPECT_FALSE((Shape{2, 0} == Shape{2}));
}

TEST(ShapeDeathTest, AxisOutOfRange) {
  const Shape shape{2, 3};
  EXPECT_DEATH((void)shape[2], "axis 2 of rank 2");
  EXPECT_DEATH((void)shape[-3], "of rank 2");
  EXPECT_DEATH((void)Shape()[0], "axis 0 of rank 0");
}

TEST(ShapeDeathTest, RankAboveTheMaximum) {
  const std::vector<int64_t> dims(kMaxRank + 1, 1);
  EXPECT_DEATH(Shape::from(dims), "rank 7");
}

TEST(TensorView, RowsAndColumns) {
  TensorView view;
  view.shape = Shape{4, 3, 5};
  EXPECT_EQ(view.cols(), 5);
  EXPECT_EQ(view.rows(), 12);
  view.shape = Shape{7};
  EXPECT_EQ(view.cols(), 7);
  EXPECT_EQ(view.rows(), 1);
  view.shape = Shape{};
  EXPECT_EQ(view.cols(), 1);
  EXPECT_EQ(view.rows(), 1);
  view.shape = Shape{3, 0};
  EXPECT_EQ(view.cols(), 0);
  EXPECT_EQ(view.rows(), 0);
}

TEST(RowBytes, PlainAndBlockTypes) {
  EXPECT_EQ(row_bytes(DType::bf16, 7), 14U);
  EXPECT_EQ(row_bytes(DType::f8_e4m3, 7), 7U);
  EXPECT_EQ(row_bytes(DType::f64, 0), 0U);
  EXPECT_EQ(row_bytes(DType::q4_1, 64), 40U);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420U);
  // Past 32 bits.
  EXPECT_EQ(row_bytes(DType::f32, int64_t{1} << 31), size_t{1} << 33);
}

TEST(RowBytesDeathTest, BlockTypesNeedWholeBlocks) {
  EXPECT_DEATH(row_bytes(DType::q8_0, 33), "33 columns of q8_0");
}

TEST(DTypeInfo, EveryTypeHasAName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(DType::q6_k); ++i) {
    const auto dtype = static_cast<DType>(i);
    const DTypeInfo& info = dtype_info(dtype);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_GT(info.block_bytes, 0);
    EXPECT_EQ(is_block_type(dtype), info.name[0] == 'q') << info.name;
  }
  EXPECT_EQ(to_string(DType::boolean), "bool");
}

// Bits per weight as GGUF's own documentation has them; they catch a row of the table that slipped.
TEST(DTypeInfo, BitsPerWeightOfBlockTypes) {
  const auto bits = [](DType dtype) {
    return 8.0 * dtype_info(dtype).block_bytes / dtype_info(dtype).block_elements;
  };
  EXPECT_EQ(bits(DType::q4_0), 4.5);
  EXPECT_EQ(bits(DType::q4_1), 5.0);
  EXPECT_EQ(bits(DType::q5_0), 5.5);
  EXPECT_EQ(bits(DType::q5_1), 6.0);
  EXPECT_EQ(bits(DType::q8_0), 8.5);
  EXPECT_EQ(bits(DType::q2_k), 2.625);
  EXPECT_EQ(bits(DType::q3_k), 3.4375);
  EXPECT_EQ(bits(DType::q4_k), 4.5);
  EXPECT_EQ(bits(DType::q5_k), 5.5);
  EXPECT_EQ(bits(DType::q6_k), 6.5625);
}

}  // namespace
}  // namespace kv8
