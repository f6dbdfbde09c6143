// A file mapped for reading. The bytes live as long as the object; moving it doesn't move them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "core/error.h"

namespace kv8 {

class MappedFile {
 public:
  // Errors: not_found (no such file, a link that leads nowhere), io (not a regular file, no permission),
  // corrupt_data (a Git LFS pointer in its place). An empty file gives an empty span.
  static Expected<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a text file. Errors as MappedFile::open, and corrupt_data above `max_bytes`.
Expected<std::string> read_text_file(const std::filesystem::path& path, size_t max_bytes = size_t{256} << 20);

}  // namespace kv8
