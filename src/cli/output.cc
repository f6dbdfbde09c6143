#include "cli/output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace kv8::cli {

namespace {

int g_error = 0;  // errno of the first write that failed

void remember(bool written) {
  if (!written && g_error == 0) g_error = errno != 0 ? errno : EIO;
}

}  // namespace

void write_output(std::string_view text) {
  errno = 0;
  remember(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

bool flush_output() {
  errno = 0;
  remember(std::fflush(stdout) == 0);
  return g_error == 0;
}

Status finish_output() {
  flush_output();
  remember(std::ferror(stdout) == 0);
  if (g_error == 0) return {};
  return make_error(ErrorCode::io, "standard output: {}", std::strerror(g_error));
}

}  // namespace kv8::cli
