#include "core/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace kv8 {

namespace {

// A clone without Git LFS has small texts in place of its large files. Whatever reads them would call them
// damaged.
Status refuse_lfs_pointer(const MappedFile& file) {
  constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/";
  constexpr size_t kMaxBytes = 1024;  // the format's own limit
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.size() > kMaxBytes || !text.starts_with(kFirstLine)) return {};
  return make_error(ErrorCode::corrupt_data,
                    "{}: a Git LFS pointer, not the file itself: run `git lfs pull` where it was cloned, or "
                    "download the file",
                    file.path().string());
}

}  // namespace

Expected<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a named pipe would wait for a writer before we could refuse it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    const ErrorCode code = error == ENOENT ? ErrorCode::not_found : ErrorCode::io;
    std::error_code no_link;
    const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
    if (error == ENOENT && !no_link) {
      return make_error(code, "{}: a link to {}, which isn't there", path.string(), target.string());
    }
    return make_error(code, "{}: cannot open: {}", path.string(), std::strerror(error));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return make_error(ErrorCode::io, "{}: not a regular file", path.string());
  }
  MappedFile file;
  file.path_ = path;
  file.size_ = static_cast<size_t>(info.st_size);
  if (file.size_ > 0) {
    void* data = ::mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      ::close(fd);
      file.size_ = 0;
      return make_error(ErrorCode::io, "{}: cannot map {} bytes: {}", path.string(), info.st_size,
                        std::strerror(error));
    }
    file.data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  KV8_RETURN_IF_ERROR(refuse_lfs_pointer(file));
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept {
  *this = std::move(other);
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Expected<std::string> read_text_file(const std::filesystem::path& path, size_t max_bytes) {
  KV8_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > max_bytes) {
    return make_error(ErrorCode::corrupt_data, "{}: {} bytes, but at most {} are expected of such a file",
                      path.string(), file.bytes().size(), max_bytes);
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace kv8
