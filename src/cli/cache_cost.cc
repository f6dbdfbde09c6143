#include "cli/cache_cost.h"

#include "cli/terminal.h"

namespace kv8::cli {

kv_cache::CachePlan plan_in(const kv_cache::CachePlan& plan, kv_cache::KvFormat format) {
  kv_cache::CachePlan result = plan;
  for (kv_cache::CacheGroup& group : result.groups) group.token_bytes = 0;
  for (kv_cache::CacheLayer& layer : result.layers) {
    layer.format = format;
    result.groups[static_cast<size_t>(layer.group)].token_bytes += layer.token_bytes();
  }
  return result;
}

std::string cache_text(const kv_cache::CachePlan& plan) {
  std::string text = fmt::format("{} bytes a token", with_thousands(plan.token_bytes()));
  if (const int64_t windows = plan.window_bytes(); windows > 0) {
    text += fmt::format(", and {} at most in windows", human_bytes(static_cast<double>(windows)));
  }
  return text;
}

Json cache_json(const kv_cache::CachePlan& plan) {
  return {{"bytes_per_token", plan.token_bytes()}, {"window_bytes_per_sequence", plan.window_bytes()}};
}

}  // namespace kv8::cli
