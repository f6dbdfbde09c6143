// The operations a model's forward is written against. One implementation per backend (ops/cpu, ops/cuda); a
// model never knows which. Ops are coarse, so that a backend can fuse.
//
// Activations are matrices [rows, cols]; row r belongs to token r of the step. Their element type is the
// backend's (float32 on the CPU). Work may be asynchronous; copy_to_host waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/attention.h"
#include "core/error.h"
#include "core/tensor.h"
#include "kv_cache/cache_plan.h"
#include "ops/activations.h"

namespace kv8::ops {

// ---- Weights

// One tensor of a logical matrix [rows, cols]; a matrix can stack several along its rows (Q over K over V).
struct MatrixPart {
  std::string name;                 // for messages
  TensorView data;                  // [rows, cols], any dtype of core/dtype.h but the integers
  std::optional<TensorView> scale;  // FP8 only; value = stored * scale. [1], [rows] or [rows, 1], or
                                    // [ceil(rows/128), ceil(cols/128)]
  std::optional<TensorView> bias;   // [rows]
};

// A matrix held by a backend. y = x W^T + bias.
class Matrix {
 public:
  virtual ~Matrix() = default;
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  size_t bytes() const { return bytes_; }  // what one pass over it reads

 protected:
  Matrix(int64_t rows, int64_t cols, size_t bytes) : rows_(rows), cols_(cols), bytes_(bytes) {}

 private:
  int64_t rows_;
  int64_t cols_;
  size_t bytes_;
};

// A vector (norm weights, sinks) held by a backend, in float32.
class Vector {
 public:
  virtual ~Vector() = default;
  int64_t size() const { return size_; }

 protected:
  explicit Vector(int64_t size) : size_(size) {}

 private:
  int64_t size_;
};

// ---- RoPE and attention

// Rotates dims [0, 2 * inverse_frequencies.size()) of each head; the rest of head_dim passes unchanged.
struct Rope {
  std::vector<float>
      inverse_frequencies;   // radians per position; scaling (linear, llama3, YaRN) is in them already
  float magnitude = 1.0F;    // multiplies cos and sin (YaRN's attention factor)
  bool interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + half)
};

struct AttentionLayer {
  int cache_layer = 0;  // index into the cache plan's layers
  int q_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  const Rope* rope = nullptr;      // null: no positions (NoPE)
  const Vector* q_norm = nullptr;  // [head_dim]: RMS norm of each head before RoPE; or null
  const Vector* k_norm = nullptr;
  float norm_epsilon = 0.0F;
  float softmax_scale = 0.0F;
  float logit_soft_cap = 0.0F;
  int64_t window = 0;
  const Vector* sinks = nullptr;
};

// ---- One step

// A sequence's share of a step: consecutive rows, consecutive positions.
struct StepSequence {
  int64_t row_begin = 0;
  int64_t row_count = 0;
  int64_t first_position = 0;
  // One page table per cache group (kv_cache::CachePlan), indexed by position / kPageTokens.
  std::vector<const int32_t*> page_tables;
};

struct Step {
  std::span<const int32_t> tokens;  // [rows]
  std::span<const StepSequence> sequences;
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual std::string name() const = 0;  // "cpu (AVX2, 2 threads)"

  // Loading. Views must stay valid as long as the result: the CPU reads weights where they lie.
  virtual Expected<std::unique_ptr<Matrix>> load_matrix(std::span<const MatrixPart> parts) = 0;
  // offset is added to each element (Gemma stores norm weights minus one).
  virtual Expected<std::unique_ptr<Vector>> load_vector(const std::string& name, const TensorView& data,
                                                        float offset) = 0;
  virtual Expected<Activations> allocate_activations(int64_t rows,
                                                     int64_t cols) = 0;  // lives as long as the Ops
  // Allocates the cache; pages[g] is the number of pages of group g. k_scales[l], v_scales[l]: [kv_heads] of
  // layer l.
  virtual Status allocate_cache(const kv_cache::CachePlan& plan, std::span<const int64_t> pages) = 0;
  virtual Status set_scales(int cache_layer, std::span<const float> k_scale,
                            std::span<const float> v_scale) = 0;
  virtual Status set_accumulate(attention::Accumulate mode) = 0;

  // A step: begin_step, then any of the ops below on rows [0, step.tokens.size()).
  virtual Status begin_step(const Step& step) = 0;
  virtual void embed(const Matrix& table, float scale, Activations out) = 0;
  virtual void rms_norm(Activations x, const Vector& weight, float epsilon, Activations out) = 0;
  // residual += post_norm ? rms_norm(x, *post_norm) : x;  out = rms_norm(residual, weight)
  virtual void add_rms_norm(Activations residual, Activations x, const Vector* post_norm,
                            const Vector& weight, float epsilon, Activations out) = 0;
  virtual void linear(const Matrix& weight, Activations x, Activations out) = 0;
  // gate_up [rows, 2n]: out[i] = activation(gate_up[i]) * gate_up[n + i]
  virtual void gated_activation(Activation activation, Activations gate_up, Activations out) = 0;
  // qkv [rows, (q_heads + 2 kv_heads) * head_dim]: norms and rotates Q and K, stores K and V, writes Q to q.
  virtual Status rope_append_kv(const AttentionLayer& layer, Activations qkv, Activations q) = 0;
  virtual Status paged_attention(const AttentionLayer& layer, Activations q, Activations out) = 0;
  // out[i] = x[rows[i]]
  virtual void gather_rows(Activations x, std::span<const int32_t> rows, Activations out) = 0;
  virtual void soft_cap(Activations x, float cap) = 0;  // x = cap * tanh(x / cap)

  // Waits for all work and copies x as float32, row-major.
  virtual Status copy_to_host(Activations x, std::span<float> out) = 0;
  // Numbers that were outside of FP8's range at the cache write, by cache layer, since the start.
  virtual std::vector<int64_t> saturations() = 0;
};

}  // namespace kv8::ops
