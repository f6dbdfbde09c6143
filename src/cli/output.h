// Standard output, with every failure to write it remembered: a full disk is an error, not a shorter answer.
// All commands print through here; main asks finish_output() at the end.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace kv8::cli {

void write_output(std::string_view text);

template <class... Args>
void print_output(fmt::format_string<Args...> format, Args&&... args) {
  write_output(fmt::format(format, std::forward<Args>(args)...));
}

// Hands on what is buffered, so that a reader sees it now. False if anything could not be written so far.
bool flush_output();

// The same at the end. io: the first failure.
Status finish_output();

}  // namespace kv8::cli
