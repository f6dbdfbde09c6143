#include "core/error.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

namespace kv8 {
namespace {

Expected<int> half(int value) {
  if (value % 2 != 0) return make_error(ErrorCode::invalid_argument, "{} is odd", value);
  return value / 2;
}

Status fail_if(bool fail, int* reached) {
  KV8_RETURN_IF_ERROR(fail ? Status(make_error(ErrorCode::io, "broken")) : Status());
  ++*reached;
  return {};
}

Expected<std::string> quarter(int value) {
  KV8_ASSIGN_OR_RETURN(const int once, half(value));
  int twice = 0;
  KV8_ASSIGN_OR_RETURN(twice, half(once));
  return std::to_string(twice);
}

Expected<std::unique_ptr<int>> make_pointer(int value) {
  return std::make_unique<int>(value);
}

Expected<int> through_pointer(int value) {
  KV8_ASSIGN_OR_RETURN(const std::unique_ptr<int> pointer, make_pointer(value));  // moved, never copied
  return *pointer;
}

TEST(Error, MakeErrorFormatsItsMessage) {
  const Expected<int> result = make_error(ErrorCode::not_found, "{}: {} of {}", "model.gguf", 3, 7);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, ErrorCode::not_found);
  EXPECT_EQ(result.error().message, "model.gguf: 3 of 7");
}

TEST(Error, ReturnIfErrorLeavesOnlyOnError) {
  int reached = 0;
  EXPECT_TRUE(fail_if(false, &reached).has_value());
  EXPECT_EQ(reached, 1);
  const Status status = fail_if(true, &reached);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_EQ(status.error().message, "broken");
  EXPECT_EQ(reached, 1);
}

TEST(Error, AssignOrReturnAssignsOrLeaves) {
  EXPECT_EQ(quarter(20).value(), "5");
  EXPECT_EQ(quarter(7).error().message, "7 is odd");
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_EQ(quarter(6).error().code, ErrorCode::invalid_argument);
}

TEST(Error, AssignOrReturnMovesWhatCannotBeCopied) {
  EXPECT_EQ(through_pointer(42).value(), 42);
}

}  // namespace
}  // namespace kv8
