// Zero bytes from the operating system, reserved at once and committed on first touch.
#pragma once

#include <cstddef>

#include "core/error.h"

namespace kv8::ops::cpu {

class LazyMemory {
 public:
  // huge_pages asks for pages of 2 MB: right for what will be touched whole. what: for the message. Errors:
  // out_of_memory.
  static Expected<LazyMemory> reserve(size_t bytes, const char* what, bool huge_pages = false);

  LazyMemory() = default;
  LazyMemory(LazyMemory&& other) noexcept;
  LazyMemory& operator=(LazyMemory&& other) noexcept;
  LazyMemory(const LazyMemory&) = delete;
  LazyMemory& operator=(const LazyMemory&) = delete;
  ~LazyMemory();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kv8::ops::cpu
