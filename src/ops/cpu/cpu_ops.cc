#include "ops/cpu/cpu_ops.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <hwy/highway.h>

#include "attention/cpu/paged_attention.h"
#include "core/check.h"
#include "ops/cpu/cache_storage.h"
#include "ops/cpu/elementwise.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/rms_norm.h"
#include "ops/cpu/rope.h"
#include "ops/cpu/weights.h"

namespace kv8::ops::cpu {

namespace {

float* row_of(const Activations& x, int64_t row) {
  return reinterpret_cast<float*>(x.data) + row * x.stride;
}

const CpuMatrix& cpu_matrix(const Matrix& matrix) {
  return static_cast<const CpuMatrix&>(matrix);
}

const float* cpu_data(const Vector* vector) {
  return vector == nullptr ? nullptr : static_cast<const CpuVector*>(vector)->data();
}

bool is_switched_on(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string_view(value) == "1";
}

class CpuOps : public Ops {
 public:
  explicit CpuOps(const CpuOptions& options)
      : pool_(options.threads),
        exact_activations_(options.exact_activations || is_switched_on("KV8_EXACT_ACTIVATIONS")),
        scratch_(pool_.threads()) {}

  std::string name() const override {
    const int64_t target = hwy::SupportedTargets() & -hwy::SupportedTargets();  // the best is the lowest bit
    return fmt::format("cpu ({}, {} thread{})", hwy::TargetName(target), pool_.threads(),
                       pool_.threads() == 1 ? "" : "s");
  }

  Expected<std::unique_ptr<Matrix>> load_matrix(std::span<const MatrixPart> parts) override {
    return CpuMatrix::load(parts, !exact_activations_, pool_);
  }

  Expected<std::unique_ptr<Vector>> load_vector(const std::string& name, const TensorView& data,
                                                float offset) override {
    if (data.bytes != row_bytes(data.dtype, data.shape.elements())) {
      return make_error(ErrorCode::invalid_argument, "{}: {} bytes for {} of shape {}", name, data.bytes,
                        to_string(data.dtype), data.shape.to_string());
    }
    std::vector<float> values = widen_tensor(data);
    for (float& value : values) value += offset;
    return std::make_unique<CpuVector>(std::move(values));
  }

  Expected<Activations> allocate_activations(int64_t rows, int64_t cols) override {
    KV8_CHECK(rows >= 0 && cols > 0, "{} x {}", rows, cols);
    KV8_ASSIGN_OR_RETURN(
        LazyMemory memory,
        LazyMemory::reserve(static_cast<size_t>(rows * cols) * sizeof(float), "activations"));
    activations_.push_back(std::move(memory));
    return Activations{activations_.back().data(), rows, cols, cols, DType::f32};
  }

  Status allocate_cache(const kv_cache::CachePlan& plan, std::span<const int64_t> pages) override {
    KV8_ASSIGN_OR_RETURN(cache_, CacheStorage::allocate(plan, pages));
    saturations_.assign(plan.layers.size(), 0);
    return {};
  }

  Status set_scales(int cache_layer, std::span<const float> k_scale,
                    std::span<const float> v_scale) override {
    return cache_.set_scales(cache_layer, k_scale, v_scale);
  }

  Status set_accumulate(attention::Accumulate mode) override {
    accumulate_ = mode;
    return {};
  }

  Status begin_step(const Step& step) override {
    const auto rows = static_cast<int64_t>(step.tokens.size());
    tokens_.assign(step.tokens.begin(), step.tokens.end());
    sequences_.assign(step.sequences.begin(), step.sequences.end());
    positions_.assign(tokens_.size(), 0);
    row_sequence_.assign(tokens_.size(), -1);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const StepSequence& sequence = sequences_[s];
      KV8_CHECK(sequence.row_begin >= 0 && sequence.row_begin + sequence.row_count <= rows,
                "rows {} + {} of {}", sequence.row_begin, sequence.row_count, rows);
      for (int64_t i = 0; i < sequence.row_count; ++i) {
        positions_[static_cast<size_t>(sequence.row_begin + i)] = sequence.first_position + i;
        row_sequence_[static_cast<size_t>(sequence.row_begin + i)] = static_cast<int>(s);
      }
    }
    rope_in_use_.clear();
    return {};
  }

  void embed(const Matrix& table, float scale, Activations out) override {
    const CpuMatrix& matrix = cpu_matrix(table);
    KV8_CHECK(out.cols == matrix.cols() && out.rows <= static_cast<int64_t>(tokens_.size()), "{} x {}",
              out.rows, out.cols);
    for_rows(out.rows, 8, [&](int64_t row) {
      const int32_t token = tokens_[static_cast<size_t>(row)];
      KV8_CHECK(token >= 0 && token < matrix.rows(), "token {} of {}", token, matrix.rows());
      matrix.widen_row(token, row_of(out, row));
      if (scale != 1.0F) scale_run(row_of(out, row), out.cols, scale);
    });
  }

  void rms_norm(Activations x, const Vector& weight, float epsilon, Activations out) override {
    KV8_CHECK(weight.size() == x.cols && out.cols == x.cols, "{} {} {}", weight.size(), x.cols, out.cols);
    for_rows(x.rows, 8, [&](int64_t row) {
      rms_norm_row(row_of(x, row), cpu_data(&weight), epsilon, x.cols, row_of(out, row));
    });
  }

  void add_rms_norm(Activations residual, Activations x, const Vector* post_norm, const Vector& weight,
                    float epsilon, Activations out) override {
    KV8_CHECK(weight.size() == x.cols && out.cols == x.cols && residual.cols == x.cols, "{} {} {}",
              weight.size(), x.cols, out.cols);
    for_rows(x.rows, 8, [&](int64_t row) {
      add_rms_norm_row(row_of(residual, row), row_of(x, row), cpu_data(post_norm), cpu_data(&weight), epsilon,
                       x.cols, row_of(out, row));
    });
  }

  void linear(const Matrix& weight, Activations x, Activations out) override {
    KV8_CHECK(x.cols == weight.cols() && out.cols == weight.rows() && out.rows >= x.rows,
              "{} -> {}: {} -> {}", weight.cols(), weight.rows(), x.cols, out.cols);
    cpu::linear(cpu_matrix(weight), row_of(x, 0), x.rows, row_of(out, 0), pool_, scratch_);
  }

  void gated_activation(Activation activation, Activations gate_up, Activations out) override {
    const int64_t cols = out.cols;
    KV8_CHECK(gate_up.cols == 2 * cols, "{} and {}", gate_up.cols, cols);
    for_rows(gate_up.rows, 2, [&](int64_t row) {
      const float* gate = row_of(gate_up, row);
      gated_activation_run(activation, gate, gate + cols, cols, row_of(out, row));
    });
  }

  Status rope_append_kv(const AttentionLayer& layer, Activations qkv, Activations q) override;
  Status paged_attention(const AttentionLayer& layer, Activations q, Activations out) override;

  void gather_rows(Activations x, std::span<const int32_t> rows, Activations out) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      KV8_CHECK(rows[i] >= 0 && rows[i] < x.rows, "row {} of {}", rows[i], x.rows);
      std::memcpy(row_of(out, static_cast<int64_t>(i)), row_of(x, rows[i]),
                  static_cast<size_t>(x.cols) * sizeof(float));
    }
  }

  void soft_cap(Activations x, float cap) override {
    for_rows(x.rows, 1, [&](int64_t row) { soft_cap_run(row_of(x, row), x.cols, cap); });
  }

  Status copy_to_host(Activations x, std::span<float> out) override {
    KV8_CHECK(out.size() == static_cast<size_t>(x.rows * x.cols), "{} floats for {} x {}", out.size(), x.rows,
              x.cols);
    std::memcpy(out.data(), x.data, out.size() * sizeof(float));
    return {};
  }

  std::vector<int64_t> saturations() override { return saturations_; }

 private:
  // body(row) for all rows, `chunk` rows per task: small steps stay on the calling thread.
  template <class Body>
  void for_rows(int64_t rows, int64_t chunk, Body body) {
    pool_.parallel_for((rows + chunk - 1) / chunk, [&](int64_t task, int) {
      for (int64_t row = task * chunk; row < std::min(rows, (task + 1) * chunk); ++row) body(row);
    });
  }

  const RopeTable* rope_table(const Rope* rope);

  ThreadPool pool_;
  bool exact_activations_;
  LinearScratch scratch_;
  std::vector<LazyMemory> activations_;
  CacheStorage cache_;
  attention::Accumulate accumulate_ = attention::Accumulate::f32;
  std::vector<int64_t> saturations_;

  // The current step.
  std::vector<int32_t> tokens_;
  std::vector<StepSequence> sequences_;
  std::vector<int64_t> positions_;
  std::vector<int> row_sequence_;  // -1: a row of no sequence
  std::map<const Rope*, size_t> rope_in_use_;
  std::vector<RopeTable> rope_tables_;  // memory kept between steps
  std::vector<attention::cpu::SequenceChunk> chunks_;
};

const RopeTable* CpuOps::rope_table(const Rope* rope) {
  if (rope == nullptr || rope->inverse_frequencies.empty()) return nullptr;
  const auto [entry, is_new] = rope_in_use_.try_emplace(rope, rope_in_use_.size());
  if (entry->second >= rope_tables_.size()) rope_tables_.resize(entry->second + 1);
  RopeTable& table = rope_tables_[entry->second];
  if (is_new) table.fill(*rope, positions_, pool_);
  return &table;
}

Status CpuOps::rope_append_kv(const AttentionLayer& layer, Activations qkv, Activations q) {
  const int64_t head_dim = layer.head_dim;
  const int64_t q_size = layer.q_heads * head_dim;
  const int64_t kv_size = layer.kv_heads * head_dim;
  KV8_CHECK(qkv.cols == q_size + 2 * kv_size && q.cols == q_size, "{} and {}", qkv.cols, q.cols);
  const attention::cpu::LayerCacheView cache = cache_.view(layer.cache_layer);
  KV8_CHECK(cache.kv_heads == layer.kv_heads && cache.head_dim == layer.head_dim, "cache layer {}",
            layer.cache_layer);
  const auto group = static_cast<size_t>(cache_.group(layer.cache_layer));
  const RopeTable* rope = rope_table(layer.rope);
  KV8_CHECK(rope == nullptr || 2 * rope->pairs <= head_dim, "{} of {}", rope->pairs, head_dim);

  const auto prepare = [&](float* head, const float* norm, int64_t row) {
    if (norm != nullptr) rms_norm_row(head, norm, layer.norm_epsilon, head_dim, head);
    if (rope == nullptr) return;
    const int64_t at = row * rope->pairs;
    rotate_head(head, rope->cos.data() + at, rope->sin.data() + at, rope->pairs, layer.rope->interleaved);
  };
  std::atomic<int64_t> saturated{0};
  for_rows(qkv.rows, 16, [&](int64_t row) {
    const int sequence_index = row_sequence_[static_cast<size_t>(row)];
    float* queries = row_of(q, row);
    float* keys = row_of(qkv, row) + q_size;
    std::memcpy(queries, row_of(qkv, row), static_cast<size_t>(q_size) * sizeof(float));
    for (int head = 0; head < layer.q_heads; ++head)
      prepare(queries + head * head_dim, cpu_data(layer.q_norm), row);
    for (int head = 0; head < layer.kv_heads; ++head)
      prepare(keys + head * head_dim, cpu_data(layer.k_norm), row);
    if (sequence_index < 0) return;
    const StepSequence& sequence = sequences_[static_cast<size_t>(sequence_index)];
    const int64_t position = positions_[static_cast<size_t>(row)];
    const int32_t page = sequence.page_tables[group][position / kv_cache::kPageTokens];
    const auto slot = static_cast<int>(position % kv_cache::kPageTokens);
    const int64_t count = attention::cpu::write_token(cache, page, slot, keys, keys + kv_size);
    if (count > 0) saturated.fetch_add(count, std::memory_order_relaxed);
  });
  saturations_[static_cast<size_t>(cache_.owner(layer.cache_layer))] += saturated.load();
  return {};
}

Status CpuOps::paged_attention(const AttentionLayer& layer, Activations q, Activations out) {
  const auto group = static_cast<size_t>(cache_.group(layer.cache_layer));
  chunks_.clear();
  for (const StepSequence& sequence : sequences_) {
    chunks_.push_back({.query_begin = sequence.row_begin,
                       .query_count = sequence.row_count,
                       .first_position = sequence.first_position,
                       .page_table = sequence.page_tables[group]});
  }
  const attention::cpu::AttentionProblem problem = {.cache = cache_.view(layer.cache_layer),
                                                    .sequences = chunks_,
                                                    .q = row_of(q, 0),
                                                    .q_stride = q.cols,
                                                    .out = row_of(out, 0),
                                                    .out_stride = out.cols,
                                                    .q_heads = layer.q_heads,
                                                    .softmax_scale = layer.softmax_scale,
                                                    .logit_soft_cap = layer.logit_soft_cap,
                                                    .window = layer.window,
                                                    .sinks = cpu_data(layer.sinks)};
  return attention::cpu::paged_attention(problem, accumulate_, pool_);
}

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(const CpuOptions& options) {
  return std::make_unique<CpuOps>(options);
}

}  // namespace kv8::ops::cpu
