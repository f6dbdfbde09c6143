// What a model's cache looks like: the format of each layer, and which layers share page tables.
//
// Layers with the same window belong to one group: their pages are allocated and freed together, so one page
// table per group and sequence serves all of them. A window group frees the pages its window has left behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "kv_cache/kv_format.h"

namespace kv8::kv_cache {

struct CacheLayer {
  KvFormat format = KvFormat::bf16;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;    // 0: keeps everything
  int shared_with = -1;  // reads that layer's cache and has none of its own; -1: its own
  int group = -1;        // set by make_cache_plan

  int64_t token_bytes() const {
    return shared_with >= 0
               ? 0
               : 2 * static_cast<int64_t>(kv_heads) * head_dim * static_cast<int64_t>(element_bytes(format));
  }
};

struct CacheGroup {
  int64_t window = 0;
  std::vector<int> layers;
  int64_t token_bytes = 0;  // of all its layers together

  int64_t page_bytes() const { return token_bytes * kPageTokens; }
  // Pages that one sequence of `tokens` tokens holds, at most, when it is processed in chunks of `chunk`
  // tokens.
  int64_t pages_for(int64_t tokens, int64_t chunk) const;
};

struct CachePlan {
  std::vector<CacheLayer> layers;
  std::vector<CacheGroup> groups;

  // Bytes of one more token of context: layers that keep everything. Scales are not counted: scale_bytes.
  int64_t token_bytes() const;
  int64_t window_bytes()
      const;                    // what the window layers hold at most per sequence, page rounding not counted
  int64_t scale_bytes() const;  // of all layers, once
  // Bytes of one sequence of `tokens` tokens, whole pages counted.
  int64_t sequence_bytes(int64_t tokens, int64_t chunk) const;
};

// Groups the layers. Errors: invalid_argument for a layer without heads or with a bad shared_with.
Expected<CachePlan> make_cache_plan(std::vector<CacheLayer> layers);

// Layers that stay in BF16 in an FP8 cache: "sliding_window", layer numbers ("0,5,7"), or both,
// comma-separated. Each layer named must exist. An empty text skips none.
Status apply_skip_layers(const std::string& text, std::vector<CacheLayer>& layers);

}  // namespace kv8::kv_cache
