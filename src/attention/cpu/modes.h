// The modes behind paged_attention. The problem has been checked by the caller.
#pragma once

#include "attention/attention.h"
#include "attention/cpu/attention_problem.h"
#include "core/thread_pool.h"

namespace kv8::attention::cpu {

void attend_f32_problem(const AttentionProblem& problem, ThreadPool& pool);
void attend_exact_problem(const AttentionProblem& problem, ThreadPool& pool);
// mode is tile, two_level or single; the cache is FP8 and head_dim a multiple of 32.
void attend_hopper_problem(const AttentionProblem& problem, Accumulate mode, ThreadPool& pool);

}  // namespace kv8::attention::cpu
