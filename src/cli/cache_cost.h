// What a cache costs, told in the same two numbers under the same names by every command: what one more token
// of context costs, and what the windows of a sequence hold at most.
#pragma once

#include <string>

#include "core/json.h"
#include "kv_cache/cache_plan.h"

namespace kv8::cli {

// The same layers, all of them stored in this format.
kv_cache::CachePlan plan_in(const kv_cache::CachePlan& plan, kv_cache::KvFormat format);

// "1,536 bytes a token, and 3.9 MB at most in windows"; without windows "1,536 bytes a token".
std::string cache_text(const kv_cache::CachePlan& plan);

// {"bytes_per_token": 1536, "window_bytes_per_sequence": 3932160}
Json cache_json(const kv_cache::CachePlan& plan);

}  // namespace kv8::cli
