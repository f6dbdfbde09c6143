// Paged attention for NVIDIA Hopper over FP8 and BF16 caches, as plain C++: device pointers, plain structs
// and a stream. No framework.
//
// One step of a model: make_plan once (it depends on the lengths alone), then for every layer append (RoPE,
// norms, quantisation, the write to the cache) and attend. Nothing here waits for the GPU, allocates, or
// reads a length on the host, so that a step can be captured in a CUDA graph and replayed while the lengths
// in device memory change.
//
// Every pointer is to device memory unless a comment says otherwise. Strides are in elements of the array
// they belong to, except those of the cache, which are in bytes. Errors are values: see Status.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace kv8::attention::cuda {

// Tokens of a page, and of the tile of keys that every kernel works on. Tiles are aligned to absolute
// positions, so that decode, chunked and one-shot prefill quantise alike.
constexpr int kPageTokens = 128;

// What a cache stores, and with it what append makes of Q.
enum class CacheFormat : uint8_t {
  fp8,   // e4m3(x / scale), a scale for each KV head; Q: e4m3 with a scale for each token and head
  bf16,  // x rounded to nearest even, no scales; Q: bf16
};

constexpr int element_bytes(CacheFormat format) {
  return format == CacheFormat::fp8 ? 1 : 2;
}

// How FP8 products are summed; docs/kernels.md has the error of each. 16-bit products are summed to float32
// by the tensor core itself: a BF16 cache has no such choice, and ignores it.
enum class Fp8Accumulate : uint8_t {
  tile,       // two levels in Q K^T and P V, P scaled by the maximum of its own tile: the default
  two_level,  // sums of a tile to float32, P scaled by the running maximum, Q K^T in one level
  single,     // the tensor core's own accumulator over all keys: to study, never to use
};

enum class OutputType : uint8_t { bf16, f32 };

// A message for a person: which argument, what was given, what would have worked.
struct Status {
  enum class Code : uint8_t { ok, invalid_argument, unsupported, cuda_error };
  Code code = Code::ok;
  char message[248] = {};

  explicit operator bool() const { return code == Code::ok; }
};

// The cache of one layer. A page holds the keys and values of kPageTokens positions for every KV head.
// docs/kernels.md draws the bytes of a page, src/attention/cuda/page_layout.h computes them. Neither the pool
// nor a page needs to be cleared before use: append does what is needed when it writes a page's first token.
struct Cache {
  CacheFormat format = CacheFormat::fp8;
  uint8_t* pool = nullptr;  // 128-byte aligned
  int64_t page_stride = 0;  // bytes from page to page, a multiple of 128, at least kv_heads * head_bytes
  int64_t head_stride = 0;  // bytes from head to head within a page, likewise, at least head_bytes
  int kv_heads = 0;
  int head_dim = 0;                // 64, 128 or 256
  const float* k_scale = nullptr;  // FP8: [kv_heads], or null: 1.0. BF16: null
  const float* v_scale = nullptr;  // likewise
};

// K and V of one head in one page.
constexpr int64_t head_bytes(CacheFormat format, int head_dim) {
  return int64_t{2} * kPageTokens * head_dim * element_bytes(format);
}

// The rows of one sequence in a step. Row i of it (0-based) stands at position first_position + i.
struct Sequence {
  int32_t row_begin;       // first row in the step's activations
  int32_t row_count;       // 0: takes no part
  int32_t first_position;  // of the first row
  int32_t page_table;      // row of Batch::page_tables
};

struct Batch {
  const Sequence* sequences = nullptr;  // [sequence_count], in order of row_begin, rows without gaps
  int sequence_count = 0;
  int rows = 0;  // upper bound of the rows of all sequences: sizes grids, may be larger
  const int32_t* page_tables =
      nullptr;  // [*][page_table_stride]: entry p / kPageTokens is the page of position p
  int64_t page_table_stride = 0;
};

// ---- Append

enum class RopeKind : uint8_t {
  none,
  half_split,   // pairs (i, i + rotary_dim / 2)
  interleaved,  // pairs (2i, 2i + 1)
};

struct AppendParams {
  Batch batch;
  Cache cache;
  int q_heads = 0;            // a multiple of cache.kv_heads
  const void* qkv = nullptr;  // bf16 [rows][>= (q_heads + 2 kv_heads) * head_dim]: Q heads, K heads, V heads
  int64_t qkv_stride = 0;     // a multiple of 8; qkv 16-byte aligned

  RopeKind rope = RopeKind::none;
  // Even (half_split: a multiple of 16), at most head_dim; the dims behind it pass unchanged.
  int rotary_dim = 0;
  const float* inverse_frequencies = nullptr;  // [rotary_dim / 2], radians per position
  float rope_magnitude = 1.0F;                 // multiplies cos and sin (YaRN)

  // [head_dim], 16-byte aligned: RMS norm of each head before RoPE; null: none.
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float norm_epsilon = 0.0F;

  void* q = nullptr;  // out: e4m3 or bf16, as the cache's format, [rows][q_heads][head_dim], 16-byte aligned
  float* q_scale =
      nullptr;  // out, FP8: [rows][q_heads], the largest magnitude of the head over 448. BF16: null
  // FP8: [2], to which the numbers of K and of V beyond 448 scales are added; or null.
  unsigned long long* saturations = nullptr;
};

// One launch for any mixture of prefill chunks and decode tokens.
Status append(const AppendParams& params, cudaStream_t stream);

// ---- Attention

// What the plan of a step depends on. Layers whose fields agree share a plan.
struct PlanParams {
  Batch batch;
  CacheFormat format = CacheFormat::fp8;
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t window = 0;  // a query sees the last `window` keys, its own among them; 0: all
  // Sequences with at most this many rows (1 to 8) are taken by decode, longer ones by prefill.
  int max_decode_rows = 1;
};

// Bytes of a plan (16-byte aligned) and of the workspace (256-byte aligned) that serve every step within the
// bounds of `params`: its sequence_count and rows. The workspace must be zero when first used; kernels leave
// it so that it can be used again. One stream uses a workspace at a time.
size_t plan_bytes(const PlanParams& params);
size_t workspace_bytes(const PlanParams& params);

// Fills `plan` on the device, from the lengths as they are when the stream gets there.
Status make_plan(const PlanParams& params, void* plan, cudaStream_t stream);

struct AttentionParams {
  PlanParams shape;  // as given to make_plan
  const void* plan = nullptr;
  void* workspace = nullptr;
  Cache cache;

  const void* q = nullptr;  // as append writes them
  const float* q_scale = nullptr;
  void* out = nullptr;  // [rows][q_heads][head_dim], 16-byte aligned
  OutputType out_type = OutputType::bf16;

  float softmax_scale = 0.0F;   // scores = softmax_scale * q.k
  float logit_soft_cap = 0.0F;  // scores = cap * tanh(scores / cap); 0: none
  const float* sinks =
      nullptr;  // [q_heads]: a logit beside the scores that takes weight and adds no value; or null
  Fp8Accumulate accumulate = Fp8Accumulate::tile;
};

// Rows of sequences with at most max_decode_rows rows. One launch of a fixed grid; the other rows are left
// alone.
Status decode(const AttentionParams& params, cudaStream_t stream);

// Rows of the longer sequences. One launch of a fixed grid; the other rows are left alone.
Status prefill(const AttentionParams& params, cudaStream_t stream);

// Writes to `buffer` (host) a table of every kernel there is, and which one `params` would get, or why none.
// Returns the length of the text; at most `size` bytes are written, the last of them 0.
size_t explain_kernels(const AttentionParams* params, char* buffer, size_t size);

}  // namespace kv8::attention::cuda
