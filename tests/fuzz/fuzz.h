// What the fuzzers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include <sys/mman.h>
#include <unistd.h>

namespace kv8::fuzz {

inline std::span<const std::byte> bytes(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

// Touches every byte, so that a sanitizer sees a view that reaches outside.
inline void read_through(std::span<const std::byte> view) {
  volatile uint8_t sink = 0;
  for (const std::byte byte : view) sink = static_cast<uint8_t>(sink ^ static_cast<uint8_t>(byte));
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

// The bytes as a file in memory, for code that opens a path.
class MemoryFile {
 public:
  MemoryFile(const uint8_t* data, size_t size) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    require(fd_ >= 0 && ::write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace kv8::fuzz
