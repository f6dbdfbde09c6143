#include "core/mapped_file.h"

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kv8 {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "kv8_core_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, HoldsTheBytes) {
  const std::string text("a\0b\xff", 4);
  const auto path = write("x", text);
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(text_of(*file), text);
  EXPECT_EQ(file->path(), path);
}

TEST_F(MappedFileTest, MovingKeepsTheBytesInPlace) {
  auto first = MappedFile::open(write("x", "hello"));
  ASSERT_TRUE(first.has_value());
  const std::byte* data = first->bytes().data();
  MappedFile second = std::move(*first);
  EXPECT_EQ(second.bytes().data(), data);
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), data);
  EXPECT_EQ(text_of(third), "hello");
}

TEST_F(MappedFileTest, EmptyFileGivesAnEmptySpan) {
  const auto file = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, MissingFile) {
  const auto file = MappedFile::open(folder_ / "nowhere.gguf");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::not_found);
  EXPECT_THAT(file.error().message, HasSubstr((folder_ / "nowhere.gguf").string()));
}

TEST_F(MappedFileTest, Directory) {
  const auto file = MappedFile::open(folder_);
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::io);
  EXPECT_THAT(file.error().message, HasSubstr("not a regular file"));
}

// Opening a pipe for reading blocks until somebody writes to it; a hang here is the failure.
TEST_F(MappedFileTest, NamedPipeIsRefusedAtOnce) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ::alarm(10);
  const auto file = MappedFile::open(path);
  ::alarm(0);
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::io);
}

TEST_F(MappedFileTest, DeviceIsRefused) {
  const auto file = MappedFile::open("/dev/zero");
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::io);
}

TEST_F(MappedFileTest, NoPermission) {
  const auto path = write("secret", "x");
  std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const bool root = ::geteuid() == 0;  // root may read everything, so it becomes nobody for a moment
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto file = MappedFile::open(path);
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::io);
  EXPECT_THAT(file.error().message, HasSubstr("Permission denied"));
}

TEST_F(MappedFileTest, ReadTextFile) {
  const auto path = write("config.json", "{}\n");
  EXPECT_EQ(read_text_file(path).value(), "{}\n");
  EXPECT_EQ(read_text_file(path, 3).value(), "{}\n");
  const auto above = read_text_file(path, 2);
  ASSERT_FALSE(above.has_value());
  EXPECT_EQ(above.error().code, ErrorCode::corrupt_data);
  EXPECT_THAT(above.error().message, HasSubstr("3 bytes"));
  EXPECT_EQ(read_text_file(write("empty", "")).value(), "");
  EXPECT_EQ(read_text_file(folder_ / "none").error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace kv8
