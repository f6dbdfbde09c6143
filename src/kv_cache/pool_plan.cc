#include "kv_cache/pool_plan.h"

#include <algorithm>

namespace kv8::kv_cache {

namespace {

Status validate(const PoolRequest& request) {
  const auto refuse = [](const char* field, int64_t value, int64_t low, int64_t high) {
    return make_error(ErrorCode::invalid_argument, "KV cache: {} {}: expected {} to {}", value, field, low,
                      high);
  };
  if (request.sequences < 1 || request.sequences > kMaxSequences)
    return refuse("sequences", request.sequences, 1, kMaxSequences);
  if (request.tokens < 1 || request.tokens > kMaxSequenceTokens)
    return refuse("tokens of context", request.tokens, 1, kMaxSequenceTokens);
  if (request.chunk < 1) return refuse("tokens of a step", request.chunk, 1, kMaxSequenceTokens);
  if (request.bytes && (*request.bytes < 1 || *request.bytes > kMaxCacheBytes))
    return refuse("bytes", *request.bytes, 1, kMaxCacheBytes);
  return {};
}

// Pages and bytes of `full_sequences` sequences in the groups that keep everything and of all sequences in
// the others. In floating point: the true numbers may be beyond 64 bits, and those that count are far below
// 2^53.
double bytes_for(const CachePlan& plan, const PoolRequest& request, int64_t tokens, int64_t full_sequences) {
  double bytes = 0;
  for (const CacheGroup& group : plan.groups) {
    const int64_t sequences = group.keeps_everything() ? full_sequences : request.sequences;
    bytes += static_cast<double>(group.pages_for(tokens, request.chunk)) * static_cast<double>(sequences) *
             static_cast<double>(group.page_bytes());
  }
  return bytes;
}

// The longest context, in tokens, of which `full_sequences` fit into `bytes`; 0 if not even a page does.
int64_t tokens_that_fit(const CachePlan& plan, const PoolRequest& request, double bytes,
                        int64_t full_sequences) {
  int64_t fits = 0;
  int64_t too_many = pages_of(request.tokens) + 1;
  while (fits + 1 < too_many) {
    const int64_t middle = fits + (too_many - fits) / 2;
    const bool ok = bytes_for(plan, request, middle * kPageTokens, full_sequences) <= bytes;
    (ok ? fits : too_many) = middle;
  }
  return std::min(fits * kPageTokens, request.tokens);
}

tl::unexpected<Error> too_large(const CachePlan& plan, const PoolRequest& request, double needed,
                                double bytes, int64_t full_sequences) {
  const int64_t fits = tokens_that_fit(plan, request, bytes, full_sequences);
  const std::string remedy = fits > 0 ? fmt::format("a context of {} would fit", fits)
                                      : std::string("not even one page of tokens would fit");
  return make_error(
      ErrorCode::out_of_memory,
      "a KV cache for {} sequences, {} of them of {} tokens, takes {:.1f} GB, and {:.1f} GB are "
      "its limit: {}; lower --max-model-len or the number of sequences, or keep the cache in FP8",
      request.sequences, full_sequences, request.tokens, needed * 1e-9, bytes * 1e-9, remedy);
}

}  // namespace

Expected<PoolPlan> plan_pools(const CachePlan& plan, const PoolRequest& request) {
  KV8_RETURN_IF_ERROR(validate(request));
  const int64_t full_sequences = request.bytes ? 1 : request.sequences;
  const auto limit = static_cast<double>(request.bytes.value_or(kMaxCacheBytes));
  const double needed = bytes_for(plan, request, request.tokens, full_sequences);
  if (needed > limit) return too_large(plan, request, needed, limit, full_sequences);

  int64_t full_page_bytes = 0;  // of one page in every group that keeps everything
  for (const CacheGroup& group : plan.groups) {
    if (group.keeps_everything()) full_page_bytes += group.page_bytes();
  }
  int64_t full_pages = pages_of(request.tokens) * full_sequences;
  if (request.bytes && full_page_bytes > 0) {
    const double others = bytes_for(plan, request, request.tokens, 0);
    full_pages = (*request.bytes - static_cast<int64_t>(others)) / full_page_bytes;
    full_pages = std::min(full_pages, kMaxPoolPages);
  }

  PoolPlan pools;
  for (const CacheGroup& group : plan.groups) {
    const int64_t pages = group.keeps_everything()
                              ? full_pages
                              : group.pages_for(request.tokens, request.chunk) * request.sequences;
    if (pages > kMaxPoolPages) {
      return make_error(
          ErrorCode::out_of_memory,
          "a KV cache for {} sequences of {} tokens has {} pages, at most {} can be numbered: lower "
          "--max-model-len or the number of sequences",
          request.sequences, request.tokens, pages, kMaxPoolPages);
    }
    pools.pages.push_back(pages);
    pools.bytes += pages * group.page_bytes();
  }
  pools.capacity = full_page_bytes > 0 ? full_pages * kPageTokens : request.sequences * request.tokens;
  return pools;
}

}  // namespace kv8::kv_cache
