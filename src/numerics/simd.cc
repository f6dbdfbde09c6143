#include "numerics/simd.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hwy/targets.h>

namespace kv8::numerics {

namespace {

// The better the instruction set, the lower its bit.
std::vector<int64_t> usable_targets() {
  return hwy::SupportedAndGeneratedTargets();
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return result;
}

}  // namespace

std::string simd_name() {
  return hwy::TargetName(usable_targets().front());
}

Status limit_simd(std::string_view name) {
  std::vector<std::string> names;
  for (const int64_t target : usable_targets()) {
    if (lower(hwy::TargetName(target)) == lower(name)) {
      hwy::DisableTargets(target - 1);
      return {};
    }
    names.emplace_back(lower(hwy::TargetName(target)));
  }
  return make_error(ErrorCode::invalid_argument, "KV8_SIMD is '{}'; this machine has {}", name,
                    fmt::join(names, ", "));
}

Status limit_simd_by_environment() {
  const char* name = std::getenv("KV8_SIMD");  // NOLINT(concurrency-mt-unsafe): before there are threads
  if (name == nullptr || *name == '\0') return {};
  return limit_simd(name);
}

}  // namespace kv8::numerics
