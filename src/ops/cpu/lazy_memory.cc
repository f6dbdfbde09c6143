#include "ops/cpu/lazy_memory.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

namespace kv8::ops::cpu {

Expected<LazyMemory> LazyMemory::reserve(size_t bytes, const char* what, bool huge_pages) {
  LazyMemory memory;
  if (bytes == 0) return memory;
  void* data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::out_of_memory, "{}: cannot reserve {} bytes: {}", what, bytes,
                      std::strerror(errno));
  }
  if (huge_pages) madvise(data, bytes, MADV_HUGEPAGE);  // a wish: its refusal changes nothing but speed
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  return memory;
}

LazyMemory::LazyMemory(LazyMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

LazyMemory& LazyMemory::operator=(LazyMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

LazyMemory::~LazyMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace kv8::ops::cpu
