#include "core/check.h"

#include <cstdio>
#include <cstdlib>

namespace kv8::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(
      stderr,
      "%s:%d: check failed: %s%s%s\nThis is a bug in kv8. Please report it with the command you ran.\n", file,
      line, condition, values.empty() ? "" : ": ", values.c_str());
  std::abort();
}

}  // namespace kv8::detail
