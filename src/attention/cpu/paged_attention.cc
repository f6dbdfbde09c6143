#include "attention/cpu/paged_attention.h"

#include "attention/cpu/modes.h"
#include "core/check.h"
#include "numerics/hopper_accumulator.h"

namespace kv8::attention::cpu {

namespace {

void check_problem(const AttentionProblem& problem) {
  const LayerCacheView& cache = problem.cache;
  KV8_CHECK(cache.kv_heads > 0 && cache.head_dim > 0, "{} heads of {} dims", cache.kv_heads, cache.head_dim);
  KV8_CHECK(problem.q_heads > 0 && problem.q_heads % cache.kv_heads == 0, "{} query heads over {} KV heads",
            problem.q_heads, cache.kv_heads);
  KV8_CHECK(cache.k_scale != nullptr && cache.v_scale != nullptr);
  const int64_t width = static_cast<int64_t>(problem.q_heads) * cache.head_dim;
  KV8_CHECK(problem.q_stride >= width && problem.out_stride >= width, "strides {} and {} for rows of {}",
            problem.q_stride, problem.out_stride, width);
  KV8_CHECK(problem.window >= 0 && problem.logit_soft_cap >= 0.0F);
  for (const SequenceChunk& sequence : problem.sequences)
    KV8_CHECK(sequence.query_count >= 0 && sequence.first_position >= 0 && sequence.page_table != nullptr);
}

}  // namespace

Status paged_attention(const AttentionProblem& problem, Accumulate mode, ThreadPool& pool) {
  check_problem(problem);
  switch (mode) {
    case Accumulate::f32:
      attend_f32_problem(problem, pool);
      return {};
    case Accumulate::exact:
      attend_exact_problem(problem, pool);
      return {};
    case Accumulate::tile:
    case Accumulate::two_level:
    case Accumulate::single:
      break;
  }
  if (problem.cache.format != KvFormat::fp8) {
    return make_error(
        ErrorCode::invalid_argument,
        "attention mode '{}' emulates FP8 tensor cores and needs an FP8 cache, but this layer's cache "
        "is {}; modes f32 and exact take any",
        to_string(mode), kv_cache::to_string(problem.cache.format));
  }
  if (problem.cache.head_dim % numerics::kHopperStep != 0) {
    return make_error(
        ErrorCode::invalid_argument,
        "attention mode '{}' needs a head_dim that is a multiple of {}, but it is {}; modes f32 and "
        "exact take any",
        to_string(mode), numerics::kHopperStep, problem.cache.head_dim);
  }
  attend_hopper_problem(problem, mode, pool);
  return {};
}

}  // namespace kv8::attention::cpu
