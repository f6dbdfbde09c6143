// What a model's cache looks like: what each layer keeps, in which format, and which layers share page
// tables.
//
// Layers of the same kind and window belong to one group: their pages are allocated and freed together, so
// one page table per group and sequence serves all of them. A window group frees the pages its window has
// left behind.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "kv_cache/kv_format.h"

namespace kv8::kv_cache {

enum class CacheKind : uint8_t {
  paged_kv,  // a key and a value per token and KV head
  latent,    // MLA: one vector per token serves all heads as K (latent and rotary dims); V is its beginning
  state,     // a recurrent layer: a fixed number of bytes per sequence, whatever its length
};

std::string_view to_string(CacheKind kind);

struct CacheLayer {
  CacheKind kind = CacheKind::paged_kv;
  KvFormat format = KvFormat::bf16;  // of paged_kv and latent
  int kv_heads = 0;                  // latent: 1; state: 0
  int k_dim = 0;                     // numbers of one key of one head; state: 0
  int v_dim = 0;           // of one value; latent: the first v_dim of k_dim, not stored apart; state: 0
  int64_t window = 0;      // tokens; 0: keeps everything
  int64_t slot_bytes = 0;  // state: bytes of one slot
  int slots = 0;           // state: slots that a sequence holds
  int shared_with = -1;    // reads that layer's cache and has none of its own; -1: its own
  int group = -1;          // set by make_cache_plan

  bool paged() const { return kind != CacheKind::state; }
  // Bytes that one token adds to this layer's own cache: its keys, its values, both.
  int64_t key_bytes() const;
  int64_t value_bytes() const;
  int64_t token_bytes() const { return key_bytes() + value_bytes(); }
};

struct CacheGroup {
  CacheKind kind = CacheKind::paged_kv;
  int64_t window = 0;
  int slots = 0;  // state: entries of a sequence's table
  std::vector<int> layers;
  int64_t token_bytes = 0;  // of all its layers together; state: 0
  int64_t slot_bytes = 0;   // state: of all its layers together

  // Does a longer sequence hold more of it, without end?
  bool keeps_everything() const { return kind != CacheKind::state && window == 0; }
  // Bytes of one page; of a state group, whose pages are slots, of one slot.
  int64_t page_bytes() const;
  // Pages that one sequence of `tokens` tokens holds, at most, when it is processed in chunks of `chunk`
  // tokens.
  int64_t pages_for(int64_t tokens, int64_t chunk) const;
};

struct CachePlan {
  std::vector<CacheLayer> layers;
  std::vector<CacheGroup> groups;

  // Bytes of one more token of context: layers that keep everything. Scales are not counted: scale_bytes.
  int64_t token_bytes() const;
  // What the window layers hold at most per sequence, page rounding not counted.
  int64_t window_bytes() const;
  int64_t state_bytes() const;  // of one sequence, in layers of kind state
  int64_t scale_bytes() const;  // of all layers, once
  // Bytes of one sequence of `tokens` tokens, whole pages counted.
  int64_t sequence_bytes(int64_t tokens, int64_t chunk) const;
};

// Pages that hold `tokens` tokens.
constexpr int64_t pages_of(int64_t tokens) {
  return tokens / kPageTokens + (tokens % kPageTokens != 0 ? 1 : 0);
}

// Groups the layers, in the order in which their kinds and windows first appear. A layer that shares
// another's cache takes over that layer's kind, format and group. Errors: invalid_argument for sizes that are
// missing, too many or too large for the kind, and for a bad shared_with.
Expected<CachePlan> make_cache_plan(std::vector<CacheLayer> layers);

// Layers that stay in BF16 in an FP8 cache: "sliding_window", layer numbers ("0,5,7"), or both,
// comma-separated. Each layer named must exist. An empty text skips none.
Status apply_skip_layers(const std::string& text, std::vector<CacheLayer>& layers);

}  // namespace kv8::kv_cache
