// How many pages each group of a cache gets: for so many sequences of so many tokens, or out of so much
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "kv_cache/block_pool.h"
#include "kv_cache/cache_plan.h"

namespace kv8::kv_cache {

// Limits, checked before anything is allocated.
constexpr int64_t kMaxSequenceTokens = kMaxPoolPages * kPageTokens;  // 2.7e11
constexpr int64_t kMaxSequences = 1 << 20;
constexpr int64_t kMaxCacheBytes = int64_t{1} << 44;

struct PoolRequest {
  int64_t sequences = 1;  // that run at the same time, at most
  int64_t tokens = 0;     // of one sequence, at most: the context length
  int64_t chunk = 1;      // of one sequence in one step, at most
  // Memory for all pages; without it they take what `sequences` of `tokens` each need.
  std::optional<int64_t> bytes;
};

struct PoolPlan {
  std::vector<int64_t> pages;  // [group]
  int64_t bytes = 0;           // of all pages
  // Tokens that all sequences together can have in the cache. Window layers and states don't limit it: they
  // hold `sequences` of any length. Where no layer keeps everything: sequences * tokens.
  int64_t capacity = 0;
};

// With a memory limit, groups with a window and states get what `sequences` need, and the rest goes to the
// groups that keep everything, as many tokens as fit; those may be fewer than sequences * tokens, but one
// sequence of `tokens` must fit. Errors: invalid_argument (numbers out of range), out_of_memory (too little
// memory, too many pages or bytes); the message says what would fit.
Expected<PoolPlan> plan_pools(const CachePlan& plan, const PoolRequest& request);

}  // namespace kv8::kv_cache
